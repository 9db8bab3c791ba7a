//! What can go wrong, and which of SQLite's codes mean what.

use std::path::{Path, PathBuf};

use polder_store::engine::EngineError;
use rusqlite::ErrorCode;

/// Why a store directory could not be opened. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another polder uses {}; stop it first, or give this one a directory of its own", .directory.display())]
    InUse { directory: PathBuf },
    #[error("cannot {action} {}; check that the directory is there and writable", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{} is not a store of polder; move it away, or put back the right file from a backup", .path.display()
    )]
    NotAStore { path: PathBuf },
    #[error(
        "{} has format {found}, and this polder knows formats up to {known}; use the polder that wrote it, or a newer one", .path.display()
    )]
    NewerFormat { path: PathBuf, found: i64, known: i64 },
    #[error("no space is left on the disk for {}; make room, then start again", .path.display())]
    Full { path: PathBuf },
    #[error("{} is damaged: {what}", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot open {}", .path.display())]
    Failed {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> OpenError {
        let path = path.into();
        move |source| match source.kind() {
            std::io::ErrorKind::StorageFull => OpenError::Full { path },
            _ => OpenError::Io { action, path, source },
        }
    }

    pub(crate) fn engine(path: &Path, error: EngineError) -> OpenError {
        let path = path.to_owned();
        match error {
            EngineError::Damaged(what) => OpenError::Damaged { path, what },
            EngineError::Full(_) => OpenError::Full { path },
            EngineError::Failed(source)
            | EngineError::Unknown(source)
            | EngineError::Unavailable(source)
            | EngineError::Doubtful(source) => OpenError::Failed { path, source },
            EngineError::Overtaken | EngineError::Compacted => {
                OpenError::Failed { path, source: error.into() }
            }
        }
    }

    pub(crate) fn sqlite(path: &Path, error: rusqlite::Error) -> OpenError {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotAStore { path: path.to_owned() },
            _ => OpenError::engine(path, engine_error(error)),
        }
    }
}

/// What it means when SQLite fails to commit a transaction. It writes the pages, the last of them with the mark that
/// makes the transaction count, then syncs, then tells the other connections. When there was no room for the pages
/// the mark is not there. After any other failure it may be: this process does not see the transaction any more,
/// but the next one to read the WAL could.
pub(crate) fn commit_error(error: rusqlite::Error) -> EngineError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => EngineError::Full(error.into()),
        _ => EngineError::Unknown(error.into()),
    }
}

/// What an error of SQLite means for the store.
pub(crate) fn engine_error(error: rusqlite::Error) -> EngineError {
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return match error {
            // A column has another type than was written: these tables are ours alone.
            rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
                EngineError::Damaged(error.to_string())
            }
            _ => EngineError::Failed(error.into()),
        };
    };
    match failure.code {
        ErrorCode::DiskFull => EngineError::Full(error.into()),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => EngineError::Damaged(error.to_string()),
        ErrorCode::SystemIoFailure => match failure.extended_code {
            rusqlite::ffi::SQLITE_IOERR_DATA => {
                EngineError::Damaged("a page of store.db does not match its checksum".to_owned())
            }
            // The shared memory of the WAL could not grow: the same disk is full.
            rusqlite::ffi::SQLITE_IOERR_SHMSIZE => EngineError::Full(error.into()),
            _ => EngineError::Failed(error.into()),
        },
        _ => EngineError::Failed(error.into()),
    }
}
