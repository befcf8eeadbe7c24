//! The database: its tables, and how a connection is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Params, Row, params};

use crate::name::Name;
use crate::store::{Opened, Summary};
use crate::stream_state::StreamState;

/// The database within the folder. Its write-ahead log has the same name with `-wal`.
pub(super) const DATABASE: &str = "messages.db";

/// The size of a write-ahead log that is kept for the next commits when it begins anew, in bytes.
const LOG_KEPT_BYTES: u32 = 32 << 20;

/// How long a connection waits for another one of this process.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);

/// - `meta` has one row, which every transaction writes.
/// - `box`: `due_ms` is when its idle time ends, in milliseconds since 1970; `state` is that of a stream, in JSON.
/// - `message`: `body` as `encoding` writes it, `size` as the bounds of a box count it. A full box has its rows written anew.
/// - `removed`: boxes that are gone, of which messages are left. They are dropped a few at a time.
/// - `key`: the keys that a box remembers, and the numbers of their messages.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        format INTEGER NOT NULL, boot TEXT NOT NULL, is_closed INTEGER NOT NULL, commits INTEGER NOT NULL,
        epoch INTEGER NOT NULL, all_from INTEGER NOT NULL, unsynced_from INTEGER NOT NULL, crc INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS box (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        epoch INTEGER NOT NULL, next INTEGER NOT NULL, lost INTEGER NOT NULL, read INTEGER NOT NULL,
        messages INTEGER NOT NULL, bytes INTEGER NOT NULL, is_durable INTEGER NOT NULL,
        idle_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, crc INTEGER NOT NULL, state TEXT);
    CREATE INDEX IF NOT EXISTS box_due ON box (due_ms);
    CREATE INDEX IF NOT EXISTS box_unused ON box (name) WHERE next = 1;
    CREATE TABLE IF NOT EXISTS removed (box INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS message (
        row INTEGER PRIMARY KEY, box INTEGER NOT NULL, seq INTEGER NOT NULL, size INTEGER NOT NULL,
        due_ns INTEGER, body BLOB NOT NULL, crc INTEGER NOT NULL);
    CREATE UNIQUE INDEX IF NOT EXISTS message_of ON message (box, seq);
    CREATE INDEX IF NOT EXISTS message_due ON message (due_ns) WHERE due_ns IS NOT NULL;
    CREATE TABLE IF NOT EXISTS key (
        box INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (box, key)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS key_order ON key (box, seq);
";

/// The columns of a box, as [`BoxRow::read`] takes them.
pub(super) const BOX_COLUMNS: &str =
    "id, name, epoch, next, lost, read, messages, bytes, is_durable, idle_ms, due_ms, crc, state";

/// Opens the database, which is made if it does not exist. Blocks.
///
/// The VFS `unix-excl` keeps the index of the write-ahead log in the memory of the process, which must be the only one. With a
/// file that is mapped into memory, a failing disk would end the process.
pub(super) fn connect(folder: &Path, cache_kib: u32) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let path = folder.join(DATABASE);
    let connection = Connection::open_with_flags_and_vfs(path, flags, c"unix-excl")?;
    connection.busy_timeout(BUSY_TIME_MAX)?;
    // The last connection that is closed after a failure must not move what may be wrong.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Otherwise a statement with a range is prepared again for each value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA mmap_size = 0;
         PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;
         PRAGMA cell_size_check = ON; PRAGMA cache_size = -{cache_kib};
         PRAGMA journal_size_limit = {LOG_KEPT_BYTES};"
    ))?;
    Ok(connection)
}

/// The write-ahead log. SQLite locks the database only, so it may be opened and closed: the close of a file ends all locks on it.
pub(super) fn log_of(folder: &Path) -> PathBuf {
    folder.join(format!("{DATABASE}-wal"))
}

/// Makes the tables that are not there. Blocks.
pub(super) fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} COMMIT;"))
}

/// Executes a statement, which is prepared once; the number of rows that it has changed.
pub(super) fn execute(
    database: &Connection,
    statement: &str,
    values: impl Params,
) -> rusqlite::Result<usize> {
    database.prepare_cached(statement)?.execute(values)
}

/// What `read` makes of the first row that a statement finds, which is prepared once.
pub(super) fn one<T>(
    database: &Connection,
    statement: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    database.prepare_cached(statement)?.query_row(values, read)
}

/// The same of all rows.
pub(super) fn all<T>(
    database: &Connection,
    statement: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = database.prepare_cached(statement)?;
    statement.query_map(values, read)?.collect()
}

/// The smallest epochs of boxes that have lost nothing. A box with a smaller one has this one instead: so a start that finds
/// that messages may be missing need not touch the boxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bases {
    /// Of all boxes.
    pub all: u64,
    /// Of boxes that are not durable.
    pub unsynced: u64,
}

impl Bases {
    /// The epoch of a box, of which the row has an earlier one perhaps.
    pub fn epoch_of(self, row: &BoxRow) -> u64 {
        let base = match row.is_durable {
            true => self.all,
            false => self.all.max(self.unsynced),
        };
        row.epoch.max(base)
    }
}

/// The row of `meta` as it was found, and whether its checksum is right; `None` in a new database.
pub(super) type Found = Option<(Meta, bool)>;

/// The row of `meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// The run of the machine in which the store was open last.
    pub boot: String,
    /// Whether the store was closed in order since.
    pub is_closed: bool,
    /// The number of commits.
    pub commits: u64,
    /// The last epoch that was given to a box.
    pub epoch: u64,
    /// From which epochs on nothing is missing.
    pub bases: Bases,
}

impl Meta {
    fn crc(&self) -> u32 {
        let Self {
            boot,
            is_closed,
            commits,
            epoch,
            bases: Bases { all, unsynced },
        } = self;
        crc32fast::hash(format!("{boot} {is_closed} {commits} {epoch} {all} {unsynced}").as_bytes())
    }

    /// Writes the row.
    pub fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let insert =
            "INSERT OR REPLACE INTO meta (id, format, boot, is_closed, commits, epoch, all_from, unsynced_from, crc)
             VALUES (1, 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let (commits, epoch) = (signed(self.commits), signed(self.epoch));
        let (all, unsynced) = (signed(self.bases.all), signed(self.bases.unsynced));
        let (boot, is_closed, crc) = (&self.boot, self.is_closed, self.crc());
        let values = params![boot, is_closed, commits, epoch, all, unsynced, crc];
        execute(connection, insert, values).map(drop)
    }

    /// Reads the row.
    pub fn read(connection: &Connection) -> rusqlite::Result<Found> {
        let select = "SELECT boot, is_closed, commits, epoch, all_from, unsynced_from, crc FROM meta WHERE id = 1";
        let found = one(connection, select, [], |row| {
            let meta = Self {
                boot: row.get(0)?,
                is_closed: row.get(1)?,
                commits: unsigned(row, 2)?,
                epoch: unsigned(row, 3)?,
                bases: Bases {
                    all: unsigned(row, 4)?,
                    unsynced: unsigned(row, 5)?,
                },
            };
            let is_right = row.get::<_, u32>(6)? == meta.crc();
            Ok((meta, is_right))
        });
        found.optional()
    }
}

/// A row of `box`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoxRow {
    pub id: i64,
    pub epoch: u64,
    pub next: u64,
    pub lost: u64,
    pub read: u64,
    pub messages: usize,
    pub bytes: usize,
    /// Everything that was acknowledged had been synced by then.
    pub is_durable: bool,
    pub idle_ms: u64,
    pub due_ms: u64,
    /// Of a stream, in JSON.
    pub state: Option<Box<str>>,
}

impl BoxRow {
    fn crc(&self, name: &str) -> u32 {
        crc32fast::hash(format!("{name} {self:?}").as_bytes())
    }

    /// Takes a row of [`BOX_COLUMNS`]. Its epoch is what `bases` make of it. `None` instead of the box if it is damaged.
    pub fn read(row: &Row<'_>, bases: Bases) -> rusqlite::Result<(Name, Option<Self>)> {
        let name: String = row.get(1)?;
        let mut found = Self {
            id: row.get(0)?,
            epoch: unsigned(row, 2)?,
            next: unsigned(row, 3)?,
            lost: unsigned(row, 4)?,
            read: unsigned(row, 5)?,
            messages: unsigned(row, 6)? as usize,
            bytes: unsigned(row, 7)? as usize,
            is_durable: row.get(8)?,
            idle_ms: unsigned(row, 9)?,
            due_ms: unsigned(row, 10)?,
            state: row.get(12)?,
        };
        let is_right = row.get::<_, u32>(11)? == found.crc(&name);
        found.epoch = bases.epoch_of(&found);
        let name = Name::parse(&name).ok_or(rusqlite::Error::InvalidQuery)?;
        Ok((name, is_right.then_some(found)))
    }

    /// The id of a box, and its row unless that is damaged; `None` if it is not known.
    pub fn find(
        database: &Connection,
        name: &Name,
        bases: Bases,
    ) -> rusqlite::Result<Option<(i64, Option<Self>)>> {
        let select = format!("SELECT {BOX_COLUMNS} FROM box WHERE name = ?1");
        let found = one(database, &select, [name.as_str()], |row| {
            Ok((row.get(0)?, Self::read(row, bases)?.1))
        });
        found.optional()
    }

    /// Writes the row, which is made if it is not there.
    pub fn write(&self, connection: &Connection, name: &Name) -> rusqlite::Result<()> {
        let (epoch, next, lost) = (signed(self.epoch), signed(self.next), signed(self.lost));
        let (read, idle_ms, due_ms) =
            (signed(self.read), signed(self.idle_ms), signed(self.due_ms));
        let crc = self.crc(name.as_str());
        let values = params![
            self.id,
            name.as_str(),
            epoch,
            next,
            lost,
            read,
            self.messages,
            self.bytes,
            self.is_durable,
            idle_ms,
            due_ms,
            crc,
            self.state,
        ];
        // A column that is set has its index written, also if it is the same as before.
        let update =
            "UPDATE box SET epoch = ?3, next = ?4, lost = ?5, read = ?6, messages = ?7, bytes = ?8, is_durable = ?9,
             idle_ms = ?10, crc = ?12, state = ?13 WHERE id = ?1 AND name = ?2 AND due_ms = ?11";
        if execute(connection, update, values)? > 0 {
            return Ok(());
        }
        let insert =
            "INSERT INTO box (id, name, epoch, next, lost, read, messages, bytes, is_durable, idle_ms, due_ms, crc, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
             ON CONFLICT (id) DO UPDATE SET name = ?2, epoch = ?3, next = ?4, lost = ?5, read = ?6, messages = ?7,
             bytes = ?8, is_durable = ?9, idle_ms = ?10, due_ms = ?11, crc = ?12,
             state = ?13";
        execute(connection, insert, values).map(drop)
    }

    /// The state of a stream.
    pub fn stream_state(&self) -> Option<StreamState> {
        StreamState::from_json(self.state.as_ref()?)
    }

    pub fn summary(&self, name: Name) -> Summary {
        Summary {
            name,
            epoch: self.epoch,
            next: self.next,
            lost: self.lost,
            read: self.read,
            messages: self.messages,
            bytes: self.bytes,
            state: self.stream_state().map(Arc::new),
        }
    }

    /// What is kept, as yet without a message.
    pub fn opened(&self) -> Opened {
        Opened {
            epoch: self.epoch,
            next: self.next,
            first: self.next,
            lost: self.lost,
            read: self.read,
            messages: Vec::new(),
            state: self.stream_state().map(Arc::new),
        }
    }
}

/// The checksum of a message: that of its body, and where it belongs.
pub(super) fn crc_of_message(id: i64, seq: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(&seq.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// A number for the database, whose integers have a sign.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of the database. A damaged one may have a sign.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.try_into().unwrap_or(0))
}
