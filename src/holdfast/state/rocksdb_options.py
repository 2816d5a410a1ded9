"""RocksDB options for the small states of queues and the large ones of tables: little memory, few files and threads."""

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options

__all__ = ["Tuning"]

_FAMILY_BUFFER = 8 << 20
_ALL_BUFFERS = 16 << 20
_ARENA_BLOCK = 256 << 10  # by default 1 MiB, which each of eight families would allocate
_BLOCK_CACHE = 8 << 20
_LARGE_FAMILY_BUFFER = 32 << 20
_LARGE_BUFFERS = 96 << 20
_LARGE_CACHE = 64 << 20
_LARGE_OPEN_FILES = 512
_WAL_MAX = 32 << 20  # the most that opening may have to replay
_OPEN_FILES = 64
_MANIFEST_MAX = 1 << 20
_MANIFEST_STEP = 64 << 10  # by default 4 MiB are reserved on the disk
_INFO_LOG_MAX = 256 << 10
_INFO_LOGS = 2
_BLOOM_BITS = 10


class Tuning:
    """The options of one open database, whose families share the cache and the limits."""

    def __init__(self, *, read_only: bool, large: bool = False) -> None:
        """Make options; `large` is for tables, which may be far larger than the state of queues."""
        self._read_only = read_only
        self._large = large
        self._blocks = BlockBasedOptions()
        self._blocks.set_block_cache(Cache(_LARGE_CACHE if large else _BLOCK_CACHE))
        # Most of the ids that are looked up for deduplication are new: the filter answers without reading a block.
        self._blocks.set_bloom_filter(_BLOOM_BITS, False)

    def options(self) -> Options:
        """Return the options of the database, and of each family in it."""
        options = Options(raw_mode=True)
        options.create_if_missing(not self._read_only)
        options.create_missing_column_families(not self._read_only)
        options.set_block_based_table_factory(self._blocks)
        options.set_write_buffer_size(_LARGE_FAMILY_BUFFER if self._large else _FAMILY_BUFFER)
        options.set_db_write_buffer_size(_LARGE_BUFFERS if self._large else _ALL_BUFFERS)
        options.set_arena_block_size(_ARENA_BLOCK)
        options.set_max_total_wal_size(_LARGE_BUFFERS if self._large else _WAL_MAX)
        # After a power cut commits that were not synced may be torn: then the state is the last consistent one. That is
        # enough, because its journal position is as old as the rest of it.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        # A reader opens every file at the start: the writer may delete them at any time.
        options.set_max_open_files(-1 if self._read_only else _LARGE_OPEN_FILES if self._large else _OPEN_FILES)
        options.set_max_file_opening_threads(1)
        options.set_manifest_preallocation_size(_MANIFEST_STEP)
        options.set_max_manifest_file_size(_MANIFEST_MAX)
        options.set_max_log_file_size(_INFO_LOG_MAX)
        options.set_keep_log_file_num(_INFO_LOGS)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        # Commits take turns anyway; without concurrency an insertion starts from the last position (0.56 us a put
        # against 0.85 over existing keys).
        options.set_allow_concurrent_memtable_write(False)
        if self._large:
            # Most keys that a new record looks up do not exist: its own key, and its unique values.
            options.set_memtable_prefix_bloom_ratio(0.05)
            options.set_memtable_whole_key_filtering(True)
            # A file with hundreds of deleted index entries is compacted soon: a scan has to skip each of them.
            options.add_compact_on_deletion_collector_factory(1000, 500, 0.5)
        # Keys and values are small and few; a scan of uncompressed blocks took 0.36 us a record, of lz4 ones 0.60.
        options.set_compression_type(DBCompressionType.none())
        return options
