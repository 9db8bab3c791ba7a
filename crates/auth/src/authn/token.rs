//! Static bearer tokens from a file, in Kubernetes' format with one column more: `token,user,uid,"groups",plane`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use polder_model::{PlaneId, SmolStr};
use sha2::{Digest, Sha256};

use crate::UserInfo;

/// Tokens by their hash: a lookup tells nothing about the tokens through its timing, and memory holds none of them.
#[derive(Debug, Default)]
pub struct StaticTokens {
    users: HashMap<[u8; 32], UserInfo>,
}

#[derive(Debug, thiserror::Error)]
#[error("line {line} of the token file: {problem}")]
pub struct TokenFileError {
    line: usize,
    problem: &'static str,
}

impl StaticTokens {
    /// Reads the file. The last column, if there is one, is the number of the only plane the token is good in.
    pub fn parse(text: &str) -> Result<StaticTokens, TokenFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let problem = |problem| TokenFileError { line: index + 1, problem };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line).ok_or_else(|| problem("a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(problem("must have at least 3 columns: token, user name, user uid"));
            };
            if token.is_empty() || name.is_empty() {
                return Err(problem("token and user name must not be empty"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default().split(',');
            let groups = groups.map(str::trim).filter(|group| !group.is_empty()).map(SmolStr::new);
            let mut user = UserInfo::authenticated(name.as_str(), groups);
            user.uid = SmolStr::new(uid);
            if rest.len() > 2 {
                return Err(problem(
                    "must have at most 5 columns: token, user name, user uid, groups, plane",
                ));
            }
            if let Some(plane) = rest.get(1).filter(|plane| !plane.is_empty()) {
                let id = plane.parse().map_err(|_| problem("the plane column must be a plane's number"))?;
                user.home = Some(PlaneId(id));
            }
            match users.entry(Sha256::digest(token.as_bytes()).into()) {
                Entry::Vacant(entry) => entry.insert(user),
                // Of two people with one token, one would act as the other.
                Entry::Occupied(_) => return Err(problem("the token stands in an earlier line too")),
            };
        }
        Ok(StaticTokens { users })
    }

    /// The planes that tokens are confined to.
    pub fn planes(&self) -> BTreeSet<PlaneId> {
        self.users.values().filter_map(|user| user.home).collect()
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub fn user(&self, token: &str) -> Option<UserInfo> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.users.get(&hash).cloned()
    }
}

/// Splits a line of comma-separated values with optional quotes.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim().chars().peekable();
    while let Some(char) = chars.next() {
        let last = columns.last_mut()?;
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            other => last.push(other),
        }
    }
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_their_planes() {
        let tokens =
            StaticTokens::parse("# people\ns3cret,ann,7,\"dev,system:masters\"\nt,bob,8,,12\n").unwrap();
        let ann = tokens.user("s3cret").unwrap();
        assert!(ann.name == "ann" && ann.uid == "7" && ann.in_group("system:masters") && ann.home.is_none());
        assert_eq!(tokens.user("t").unwrap().home, Some(PlaneId(12)));
        assert_eq!((tokens.len(), tokens.planes()), (2, [PlaneId(12)].into()));
        assert_eq!(tokens.user("other"), None);
        assert_eq!(tokens.user(""), None);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, line) in [
            ("a,b", 1),
            ("x,y,z\n\"a,b,c", 2),
            (",b,c", 1),
            ("a,b,c,g,plane", 1),
            ("a,b,c,,7,", 1),
            ("a,b,c\n\nx,y,z\na,other,c", 4),
        ] {
            let error = StaticTokens::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line} ")), "{error}");
        }
    }
}
