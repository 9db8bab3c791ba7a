//! Six people, and what each of them is told.

use std::collections::BTreeMap;

use polder_test_support::{Client, Connection, Reply, Value, json};

use crate::routes::{Ask, Right};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"];

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// An authorizer let it pass, whatever came of it.
    Yes,
    /// 401 or 403 by an authorizer.
    No,
    /// As if there were no such plane.
    NoPlane,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::Yes => "yes",
            Outcome::No => "-",
            Outcome::NoPlane => "no plane",
        }
    }
}

/// Somebody with a connection that stays open.
pub(crate) struct Caller {
    client: Client,
    connection: Option<Connection>,
}

impl Caller {
    pub(crate) fn new(client: Client) -> Caller {
        Caller { client, connection: None }
    }

    pub(crate) fn code(&mut self, method: &str, path: &str) -> u16 {
        self.send(&self.client.head(method, path, &[], b""), b"").code
    }

    fn ask(&mut self, ask: &Ask) -> Reply {
        let body = ask.body.as_bytes();
        let media: &[(&str, &str)] = match body {
            b"" => &[],
            _ => &[("Content-Type", ask.media)],
        };
        let head = self.client.head(ask.method, &ask.path, media, body);
        if ask.streams {
            // What follows the head of a stream has no end: leave it.
            let mut connection = self.client.connect().unwrap();
            let reply = connection.start(&head, body).unwrap();
            return if reply.code == 200 { reply } else { self.send(&head, body) };
        }
        self.send(&head, body)
    }

    fn send(&mut self, head: &str, body: &[u8]) -> Reply {
        // The server may have closed a connection that was refused something; then there is a new one.
        if let Some(connection) = &mut self.connection
            && let Ok(reply) = connection.send(head, body)
        {
            if reply.header("connection") == Some("close") {
                self.connection = None;
            }
            return reply;
        }
        let mut connection = self.client.connect().unwrap();
        let reply = connection.send(head, body).unwrap();
        self.connection = Some(connection).filter(|_| reply.header("connection") != Some("close"));
        reply
    }
}

/// Everybody who asks, in the order of the columns.
pub(crate) struct People {
    admin: Caller,
    callers: Vec<(&'static str, Caller)>,
    /// What whoever may not know of this plane is told.
    no_plane: String,
}

impl People {
    pub(crate) const WORDS: &str = "\
# Who may do what: a line for each thing, with the verbs for which it is so. `yes` means that the request passed the
# authorizers, `-` that it was refused by them, `no plane` that the plane does not exist for whoever asked.
#
#  1 nobody: without a credential                 2 unbound: an account of the plane that nothing was given to
#  3 elsewhere: has the right in another namespace 4 others: has every right of the plane but this one
#  5 exactly: has this right and no other         6 stranger: administrator of another plane
#
# 1         2         3         4         5         6";

    /// In the plane of an administrator, and somebody of another plane.
    pub(crate) fn new(admin: &Client, stranger: &Client) -> People {
        let other = "elsewhere";
        let namespaces = "/api/v1/namespaces";
        admin.post(namespaces, &json!({"metadata": {"name": other}})).expect(201);
        for role in ["exact", "others"] {
            admin.post(ROLES, &json!({"metadata": {"name": role}, "rules": []})).expect(201);
        }
        let binding = |role: &str, account: &str| {
            json!({
                "metadata": {"name": account},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
            })
        };
        let account = |name: &str| {
            let accounts = format!("{namespaces}/default/serviceaccounts");
            admin.post(&accounts, &json!({"metadata": {"name": name}})).expect(201);
            let token = admin.post(&format!("{accounts}/{name}/token"), &json!({"spec": {}})).expect(201);
            admin.with_token(token.json()["status"]["token"].as_str().unwrap()).unwrap()
        };
        let mut strange = stranger.clone();
        strange.prefix.clone_from(&admin.prefix);
        let clients = [
            ("nobody", admin.anonymous().unwrap()),
            ("unbound", account("unbound")),
            ("elsewhere", account("elsewhere")),
            ("others", account("others")),
            ("exactly", account("exactly")),
            ("stranger", strange),
        ];
        admin.post(BINDINGS, &binding("others", "others")).expect(201);
        admin.post(BINDINGS, &binding("exact", "exactly")).expect(201);
        let in_namespace = BINDINGS.replace("clusterrolebindings", "namespaces/elsewhere/rolebindings");
        admin.post(&in_namespace, &binding("exact", "elsewhere")).expect(201);
        let callers = clients.map(|(name, client)| (name, Caller::new(client))).into();
        let plane = admin.prefix.trim_start_matches("/clusters/");
        let plane = if plane.is_empty() { "core" } else { plane };
        let no_plane = format!("planes.polder.dev \\\"{plane}\\\" not found");
        People { admin: Caller::new(admin.clone()), callers, no_plane }
    }

    /// Gives one of them this right, and another all the rest.
    pub(crate) fn give(&mut self, right: &Right, all: &[Right]) {
        let exactly: Vec<&str> = match right.and_create {
            true => vec![right.verb, "create"],
            false => vec![right.verb],
        };
        let others: Vec<&str> = VERBS.into_iter().filter(|verb| *verb != right.verb).collect();
        let rule = |right: &Right, verbs: &[&str]| match &right.group {
            Some(group) => json!({"apiGroups": [group], "resources": [right.resource], "verbs": verbs}),
            None => json!({"nonResourceURLs": [right.resource], "verbs": verbs}),
        };
        // Everything else, by name: a wildcard would be this right too.
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut paths = Vec::new();
        for other in all {
            if (&other.group, &other.resource) != (&right.group, &right.resource) {
                match &other.group {
                    Some(group) => groups.entry(group).or_default().push(&other.resource),
                    None => paths.push(&other.resource),
                }
            }
        }
        let mut rest: Vec<Value> = vec![rule(right, &others)];
        for (group, mut resources) in groups {
            resources.dedup();
            rest.push(json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]}));
        }
        paths.dedup();
        if !paths.is_empty() {
            rest.push(json!({"nonResourceURLs": paths, "verbs": ["*"]}));
        }
        for (role, rules) in [("exact", vec![rule(right, &exactly)]), ("others", rest)] {
            let body = json!({"rules": rules}).to_string();
            let head = self.admin.client.head(
                "PATCH",
                &format!("{ROLES}/{role}"),
                &[("Content-Type", "application/merge-patch+json")],
                body.as_bytes(),
            );
            self.admin.send(&head, body.as_bytes()).expect(200);
        }
    }

    /// What each of them is told.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for (name, caller) in &mut self.callers {
            let reply = caller.ask(ask);
            let outcome = outcome(&reply, &self.no_plane);
            if ask.method == "GET" && !ask.streams {
                // The same without a body.
                assert_eq!(caller.code("HEAD", &ask.path), reply.code, "HEAD {} by {name}", ask.path);
            }
            if *name == "exactly" {
                let text = reply.text();
                let who = format!("{} {} by {name}: {} {text}", ask.method, ask.path, reply.code);
                assert_eq!(outcome, Outcome::Yes, "the right is not enough: {who}");
                let is_served = !matches!(reply.code, 405 | 406 | 415 | 501..)
                    && !text.contains("no authorizer was asked")
                    && !text.contains("could not find the requested resource")
                    && !text.contains("page not found");
                assert!(is_served, "what the table has is not served: {who}");
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

fn outcome(reply: &Reply, no_plane: &str) -> Outcome {
    let text = reply.text();
    match reply.code {
        401 => Outcome::No,
        // Plugins refuse with this code too, and so do escalations: those have passed.
        403 if text.contains("cannot ") && text.contains("User ") => Outcome::No,
        404 if text.contains(no_plane) => Outcome::NoPlane,
        _ => Outcome::Yes,
    }
}
