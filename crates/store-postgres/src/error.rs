//! What can become of a question to PostgreSQL.

use polder_store::engine::EngineError;
use tokio_postgres::error::{Severity, SqlState};

/// Why the server did not do what it was asked, and whether it may have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// It could not be asked. Nothing was done.
    #[error("cannot reach PostgreSQL")]
    Unreachable(#[source] Source),
    /// It was asked, and nobody knows what it did.
    #[error("PostgreSQL does not say what it did")]
    Unknown(#[source] Source),
    /// Nothing was done, and it may be when it is asked again, perhaps elsewhere.
    #[error("PostgreSQL cannot do it now")]
    Busy(#[source] Source),
    /// Nothing was done.
    #[error("PostgreSQL has no room left")]
    Full(#[source] Source),
    /// Nothing was done, and will not be.
    #[error("PostgreSQL refuses")]
    Refused(#[source] Source),
}

type Source = Box<dyn std::error::Error + Send + Sync>;

impl PostgresError {
    /// Of an attempt to connect.
    pub(crate) fn of_connecting(source: tokio_postgres::Error) -> PostgresError {
        let is_for_ever = match source.as_db_error() {
            Some(error) => is_for_ever(error.code()),
            // What this side knows by itself: that it has no password, or that the server speaks no TLS.
            None => std::error::Error::source(&source).is_some_and(|cause| !cause.is::<std::io::Error>()),
        };
        match is_for_ever {
            true => PostgresError::Refused(Box::new(source)),
            false => PostgresError::Unreachable(Box::new(source)),
        }
    }

    /// Of a statement that is a transaction by itself.
    pub(crate) fn of_statement(source: tokio_postgres::Error) -> PostgresError {
        let Some(error) = source.as_db_error() else { return PostgresError::Unknown(Box::new(source)) };
        // A session that is ended may have committed before.
        if error.parsed_severity() != Some(Severity::Error) {
            return PostgresError::Unknown(Box::new(source));
        }
        let code = error.code().clone();
        let source: Source = Box::new(source);
        if code == SqlState::DISK_FULL {
            PostgresError::Full(source)
        } else if is_passing(&code) {
            PostgresError::Busy(source)
        } else {
            PostgresError::Refused(source)
        }
    }

    pub(crate) fn late() -> PostgresError {
        PostgresError::Unknown("no answer in time".into())
    }

    /// Whether a change that ended so may have been made all the same, or may still be made.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, PostgresError::Unknown(_))
    }

    /// Whether the same may go well a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self, PostgresError::Full(_) | PostgresError::Refused(_))
    }

    /// What failed in such a way did nothing, or nothing that matters.
    pub(crate) fn failed(self) -> EngineError {
        match self {
            PostgresError::Full(_) => EngineError::Full(Box::new(self)),
            PostgresError::Refused(_) => EngineError::Failed(Box::new(self)),
            _ => EngineError::Unavailable(Box::new(self)),
        }
    }

    pub(crate) fn unknown(self) -> EngineError {
        EngineError::Unknown(Box::new(self))
    }
}

/// Whether a server that says so will say so again: whom it does not know, or what is not there.
fn is_for_ever(code: &SqlState) -> bool {
    let class = code.code().get(..2);
    class == Some("28") || class == Some("42") || *code == SqlState::INVALID_CATALOG_NAME
}

/// Whether it may go well a moment later: a standby that was no standby, a deadlock, a lock that was held for long.
fn is_passing(code: &SqlState) -> bool {
    [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::OUT_OF_MEMORY,
        SqlState::TOO_MANY_CONNECTIONS,
    ]
    .contains(code)
}
