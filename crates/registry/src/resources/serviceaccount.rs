//! Service accounts.

use polder_model::{Value, json};

use super::cells;
use crate::behavior::{Behavior, Column};

pub(super) const SERVICEACCOUNTS: Behavior = Behavior {
    resource: "serviceaccounts",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::AGE],
    cells: |account, print| vec![cells::name(account), cells::age(account, print)],
    prepare_create: only_secret_names,
    prepare_update: |new, _| only_secret_names(new),
    ..Behavior::PLAIN
};

/// References to secrets are names and nothing else.
fn only_secret_names(account: &mut Value) {
    for secret in account.at_mut(&["secrets"]).and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = match secret.str_at(&["name"]) {
            Some(name) => json!({"name": name}),
            None => json!({}),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, prints};
    use super::SERVICEACCOUNTS;

    #[test]
    fn cells_and_references() {
        prints(&SERVICEACCOUNTS, r#"{"metadata":{"name":"a","creationTimestamp":"bad"}}"#, "a|<unknown>");
        creates(
            &SERVICEACCOUNTS,
            r#"{"secrets":[{"name":"s","kind":"Secret"},{"kind":"X"}]}"#,
            r#"{"secrets":[{"name":"s"},{}]}"#,
        );
    }
}
