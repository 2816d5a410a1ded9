"""Tests of the RPC server, with clients in processes of their own."""
