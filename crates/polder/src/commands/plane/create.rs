//! `polder plane create`.

use std::str::FromStr;
use std::time::Instant;

use anyhow::Context as _;
use polder_client_http::{Client, ClientError, Method};
use polder_model::{Value, json};

use super::{API_VERSION, PLANES, explain, many, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Create {
    /// The name: small letters, digits and hyphens.
    #[arg(required_unless_present_any = ["count", "prefix"])]
    name: Option<String>,
    #[command(flatten)]
    spec: Spec,
    /// Start as this plane, or as this layer, is now.
    #[arg(long, value_name = "PLANE|layer/NAME")]
    fork_from: Option<String>,
    /// What the plane is for: cluster has every kind; generic has no pods, nodes, workloads, networking or storage.
    #[arg(long, value_name = "PROFILE", value_parser = ["cluster", "generic"], conflicts_with = "fork_from")]
    profile: Option<String>,
    /// Create so many planes, named PREFIX-1, PREFIX-2 and so on; those that are there already are left alone.
    #[arg(long, value_name = "N", requires = "prefix", conflicts_with = "name")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: Option<u32>,
    /// What the names of many planes begin with; a hyphen and a number follow.
    #[arg(long)]
    prefix: Option<String>,
}

/// What can be said about a new plane, however it is made.
#[derive(clap::Args)]
pub(crate) struct Spec {
    /// A name for people.
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// What the plane may use: objects, storedBytes, objectBytes, watches, requestsInFlight, requestsPerSecond, weight.
    #[arg(long = "limit", value_name = "WHAT=NUMBER")]
    limits: Vec<Limit>,
}

const LIMITS: [&str; 7] =
    ["objects", "storedBytes", "objectBytes", "watches", "requestsInFlight", "requestsPerSecond", "weight"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    what: &'static str,
    number: i64,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let (what, number) = text.split_once('=').ok_or("a limit is written as objects=1000")?;
        let known = LIMITS.iter().find(|known| **known == what);
        let what = known.ok_or_else(|| format!("no limit {what:?}; there are {}", LIMITS.join(", ")))?;
        let number = number.parse().ok().filter(|number| *number >= 0);
        Ok(Limit {
            what,
            number: number.ok_or_else(|| {
                format!("{what} must be a whole number from 0, the default, to {}", i64::MAX)
            })?,
        })
    }
}

impl Spec {
    /// The object to create.
    pub(crate) fn plane(&self, name: &str, fork_from: Option<&str>) -> Value {
        let mut plane =
            json!({"kind": "Plane", "apiVersion": API_VERSION, "metadata": {"name": name}, "spec": {}});
        if let Some(text) = &self.display_name {
            plane.set_at(&["spec", "displayName"], text.as_str());
        }
        if let Some(source) = fork_from {
            plane.set_at(&["spec", "forkFrom"], source);
        }
        for Limit { what, number } in &self.limits {
            plane.set_at(&["spec", "limits", what], *number);
        }
        plane
    }
}

impl Create {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        match (self.count, &self.prefix) {
            (Some(count), _) => return self.many(client, count).await,
            (None, Some(prefix)) => {
                anyhow::bail!(
                    "--prefix is for many planes: say how many with --count, or name one {prefix:?}"
                )
            }
            (None, None) => {}
        }
        let name = self.name.clone().unwrap_or_default();
        plane_path(&name)?;
        let plane = self.template(&name);
        make(client, &plane).await?;
        output::print(&format!("plane/{name} created\n"))
    }

    fn template(&self, name: &str) -> Value {
        let mut plane = self.spec.plane(name, self.fork_from.as_deref());
        if let Some(profile) = &self.profile {
            plane.set_at(&["spec", "profile"], profile.as_str());
        }
        plane
    }

    async fn many(self, client: &Client, count: u32) -> anyhow::Result<()> {
        let prefix = self.prefix.as_deref().unwrap_or_default().trim_end_matches('-');
        let names: Vec<String> = (1..=count).map(|number| format!("{prefix}-{number}")).collect();
        if let Some(last) = names.last() {
            plane_path(last)?;
        }
        let template = self.template("");
        let started = Instant::now();
        let act = move |client: Client, name: String| {
            let mut plane = template.clone();
            plane.set_at(&["metadata", "name"], name.as_str());
            async move { created(client.create(PLANES, &plane).await) }
        };
        let (outcome, result) = many::for_each(client, names, "creating", act).await;
        if let Err(error) = result {
            let done = outcome.done + outcome.unchanged;
            let why = format!("{done} of {count} planes are there; run the same command again to go on");
            return Err(explain(client, error)).context(why);
        }
        let seconds = started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = outcome.done as f64 / seconds.max(0.001);
        let mut text = format!("{} created in {seconds:.2} s ({rate:.0}/s)", output::planes(outcome.done));
        if outcome.unchanged > 0 {
            text.push_str(&format!(", {} were there already", outcome.unchanged));
        }
        output::print(&(text + "\n"))
    }
}

/// Creates one plane, and passes on what the server has to say about it.
pub(crate) async fn make(client: &Client, plane: &Value) -> anyhow::Result<()> {
    let answer = client.request(Method::POST, PLANES, Some(plane)).await;
    for warning in answer.map_err(|error| explain(client, error))?.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(())
}

fn created(answer: Result<Value, ClientError>) -> Result<bool, ClientError> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.api().is_some_and(|api| api.reason == "AlreadyExists") => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let rows = [
            ("objects=10", Some(("objects", 10))),
            ("requestsPerSecond=0", Some(("requestsPerSecond", 0))),
            ("objects", None),
            ("objects=", None),
            ("objects=-1", None),
            ("pods=5", None),
        ];
        for (text, expected) in rows {
            let found = text.parse::<Limit>().ok().map(|limit| (limit.what, limit.number));
            assert_eq!(found, expected, "{text}");
        }
    }
}
