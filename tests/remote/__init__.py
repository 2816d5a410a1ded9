"""Tests of the room that speaks with a server."""
