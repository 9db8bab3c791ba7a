//! Who are you: from a client certificate or a bearer token. The first credential that is presented decides; a bad
//! token is refused even where anonymous access would be allowed.

mod account;
mod certificate;
mod token;

pub use account::{AccountKeyError, AccountTokens, Bound, Claims};
pub use certificate::{PLANE_URI_SCHEME, user_from_certificate};
pub use token::{StaticTokens, TokenFileError};

use crate::UserInfo;

/// What a request brought along to prove who sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The client's certificate, whose chain the TLS layer has verified.
    pub certificate: Option<&'a [u8]>,
    pub bearer_token: Option<&'a str>,
}

/// The credential is not valid; the client learns no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential is not valid")]
pub struct Unauthenticated;

/// All ways to authenticate, in order.
#[derive(Debug, Default)]
pub struct Authenticators {
    pub tokens: StaticTokens,
    /// Tokens of service accounts, whose users depend on what is in a plane: whoever knows planes reads them.
    pub accounts: Option<AccountTokens>,
}

impl Authenticators {
    pub fn authenticate(&self, credentials: Credentials<'_>) -> Result<UserInfo, Unauthenticated> {
        if let Some(certificate) = credentials.certificate {
            return user_from_certificate(certificate).ok_or(Unauthenticated);
        }
        if let Some(token) = credentials.bearer_token {
            return self.tokens.user(token).ok_or(Unauthenticated);
        }
        Ok(UserInfo::anonymous())
    }
}
