//! Who are you: from a client certificate or a bearer token. The first credential that is presented decides; a bad
//! token is refused even where anonymous access would be allowed.

mod account;
mod certificate;
mod recent;
mod token;

pub use account::{AccountKeyError, AccountTokens, Bound, Claims};
pub use certificate::{ClientCertificate, PLANE_URI_SCHEME};
pub use token::{StaticTokens, TokenFileError};

use crate::UserInfo;

/// What an extra of a user says: by which credential they came.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The credential is not valid; the client learns no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential is not valid")]
pub struct Unauthenticated;

/// All ways to authenticate whoever shows no certificate, in order.
#[derive(Debug, Default)]
pub struct Authenticators {
    pub tokens: StaticTokens,
    /// Tokens of service accounts, whose users depend on what is in a plane: whoever knows planes reads them.
    pub accounts: Option<AccountTokens>,
}

impl Authenticators {
    /// Whoever a bearer token is of; nobody in particular without one.
    pub fn authenticate(&self, bearer_token: Option<&str>) -> Result<UserInfo, Unauthenticated> {
        match bearer_token {
            Some(token) => self.tokens.user(token).ok_or(Unauthenticated),
            None => Ok(UserInfo::anonymous()),
        }
    }
}
