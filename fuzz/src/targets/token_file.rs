//! Token files: every user that is read is a named, authenticated one, and no token is empty.

use polder_auth::authn::StaticTokens;

pub const WORDS: &[&str] = &[
    "token,user,uid\n", "t,u,1,\"a,b\",7\n", ",", "\"", "\"\"", "\n", "\r\n", "#", " ", "system:masters", "18446744073709551616", "-1", "é", "\0",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tokens = match StaticTokens::parse(text) {
        Ok(tokens) => tokens,
        Err(error) => return assert!(error.to_string().starts_with("line ")),
    };
    assert_eq!(tokens.user(""), None);
    crate::accepted();
    let unquoted = text.replace('"', "");
    for line in text.lines().map(str::trim) {
        // Without quotes and comments, the columns are what stands between commas; a later line may say otherwise.
        let columns: Vec<&str> = line.split(',').collect();
        let [token, name, ..] = columns.as_slice() else { continue };
        if line.contains('"') || line.starts_with('#') || unquoted.matches(token).count() > 1 {
            continue;
        }
        let user = tokens.user(token).unwrap_or_else(|| panic!("{token:?} is the token of {name:?}"));
        assert_eq!(user.name, *name);
        assert!(!user.name.is_empty() && user.in_group("system:authenticated"));
        let plane = columns.get(4).filter(|plane| !plane.is_empty());
        assert_eq!(user.home.is_some(), plane.is_some(), "confined exactly when a plane is named");
    }
}
