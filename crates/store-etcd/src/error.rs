//! What can become of a call to etcd.

use polder_client_http::grpc::GrpcError;

/// Why etcd did not do what it was asked, and whether it may have.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member could be asked. Nothing was done.
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: GrpcError,
    },
    /// It was asked, and nobody knows what it did.
    #[error("{url} does not say what it did")]
    Unknown {
        url: String,
        #[source]
        source: GrpcError,
    },
    /// It answered, with what is no answer; it may have done what it was asked.
    #[error("{url} answers with no message of its kind")]
    Answer { url: String },
    /// It was asked about a time that it has forgotten.
    #[error("etcd has compacted what was asked for")]
    Compacted,
    /// Its database is full. A change that found it full first has been made all the same: etcd says so after the fact.
    #[error("etcd's database is full: {message}")]
    NoSpace { message: String },
    /// Nothing was done for whom it does not know.
    #[error("etcd does not accept who we are: {message}")]
    Auth { message: String },
    /// Nothing was done.
    #[error("etcd refuses, with code {code}: {message}")]
    Refused { code: u32, message: String },
}

mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const ALREADY_EXISTS: u32 = 6;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

impl EtcdError {
    pub(crate) fn of(url: &str, source: GrpcError) -> EtcdError {
        let url = url.to_owned();
        if source.is_unsent() {
            return EtcdError::Unreachable { url, source };
        }
        let GrpcError::Status { code, message } = source else { return EtcdError::Unknown { url, source } };
        match code {
            code::RESOURCE_EXHAUSTED if message.contains("database space exceeded") => {
                EtcdError::NoSpace { message }
            }
            code::OUT_OF_RANGE if message.contains("compacted") => EtcdError::Compacted,
            code::UNAUTHENTICATED | code::PERMISSION_DENIED => EtcdError::Auth { message },
            // Words of etcd about tokens, under a code that says other things too.
            code::INVALID_ARGUMENT
                if ["auth store is old", "user name is empty", "authentication failed"]
                    .iter()
                    .any(|words| message.contains(words)) =>
            {
                EtcdError::Auth { message }
            }
            code::INVALID_ARGUMENT
            | code::NOT_FOUND
            | code::ALREADY_EXISTS
            | code::RESOURCE_EXHAUSTED
            | code::FAILED_PRECONDITION
            | code::OUT_OF_RANGE
            | code::UNIMPLEMENTED => EtcdError::Refused { code, message },
            _ => EtcdError::Unknown { url, source: GrpcError::Status { code, message } },
        }
    }

    /// Whether a change that ended so may have been made all the same, or may still be made.
    pub fn is_unknown(&self) -> bool {
        matches!(self, EtcdError::Unknown { .. } | EtcdError::Answer { .. })
    }

    /// Whether another member may do better.
    pub(crate) fn is_of_member(&self) -> bool {
        self.is_unknown() || matches!(self, EtcdError::Unreachable { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u32, message: &str, expected: &str) {
        let error = EtcdError::of("url", GrpcError::Status { code, message: message.into() });
        let found = format!("{error:?}");
        assert!(found.starts_with(expected), "{found}");
    }

    /// As etcd words them.
    #[test]
    fn refusals() {
        check(14, "etcdserver: request timed out", "Unknown");
        check(14, "etcdserver: leader changed", "Unknown");
        check(14, "etcdserver: no leader", "Unknown");
        check(4, "context deadline exceeded", "Unknown");
        check(8, "etcdserver: mvcc: database space exceeded", "NoSpace");
        check(8, "etcdserver: too many requests", "Refused");
        check(11, "etcdserver: mvcc: required revision has been compacted", "Compacted");
        check(11, "etcdserver: mvcc: required revision is a future revision", "Refused");
        check(16, "etcdserver: invalid auth token", "Auth");
        check(7, "etcdserver: permission denied", "Auth");
        check(3, "etcdserver: revision of auth store is old", "Auth");
        check(3, "etcdserver: authentication failed, invalid user ID or password", "Auth");
        check(3, "etcdserver: too many operations in txn request", "Refused");
        check(3, "etcdserver: request is too large", "Refused");
    }
}
