//! `polder keys`: what the server signs with and shows, when each of it ends, and how an operator turns it over before that. It works
//! on the files of the data directory; a server that runs takes changes over within seconds. Where replicas share the keys, one that runs
//! is asked.

use std::path::PathBuf;

use anyhow::Context as _;
use polder_client_http::Kubeconfig;
use polder_machinery::age::human_age;
use polder_model::{Value, json};
use polder_server::keys::{Family, KeyFile, Keys as AllKeys, Standing, validity};

use super::output;
use crate::key_request::{KeyRequest, time};

#[derive(clap::Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List keys and certificates, how each is used, and when it ends.
    #[command(visible_alias = "get")]
    List {
        #[command(flatten)]
        place: Place,
        /// How to print them; a table otherwise.
        #[arg(short, long, value_name = "json|name", hide_possible_values = true)]
        output: Option<Form>,
    },
    /// Make new ones beside the old. They are used when everybody knows them; what the old ones signed stays good until it ends.
    Rotate {
        #[arg(
            value_name = "authority|service-accounts|front-proxy|serving|admin|all",
            hide_possible_values = true
        )]
        what: What,
        /// Use them at once. Whoever has not heard of them may not believe them.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Believe an old key no more, whatever it signed: when it is in wrong hands.
    Drop {
        /// As `polder keys list` names them, such as authority-1.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(clap::Args)]
struct Place {
    /// The data directory of `polder serve`.
    #[arg(long, value_name = "DIR", env = "POLDER_DATA_DIR")]
    data_dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Json,
    Name,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Authority,
    ServiceAccounts,
    FrontProxy,
    Serving,
    Admin,
    All,
}

impl Keys {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let now = jiff::Timestamp::now().as_second();
        match self.command {
            Command::List { place, output } => place.list(output, now),
            Command::Rotate { what, now: at_once, place } => place.rotate(what, at_once, now),
            Command::Drop { names, place } => place.drop_keys(&names, now),
        }
    }
}

/// Where the keys are.
enum Kept {
    Here(KeyFile),
    /// With other replicas. What is known of them here has no secrets.
    Shared {
        file: KeyFile,
        keys: Box<AllKeys>,
    },
}

/// A line of the list.
struct Row {
    name: String,
    status: &'static str,
    created: i64,
    ends: i64,
    /// What comes next, and when.
    then: Option<(&'static str, i64)>,
}

impl Place {
    fn kept(&self) -> anyhow::Result<Kept> {
        let directory = self.data_dir.join("pki");
        if let Some((file, keys)) = KeyFile::told(&directory)? {
            return Ok(Kept::Shared { file, keys: Box::new(keys) });
        }
        let file = KeyFile::existing(&directory);
        let file =
            file.with_context(|| format!("there are no keys of a server in {}", self.data_dir.display()))?;
        Ok(Kept::Here(file))
    }

    fn list(&self, form: Option<Form>, now: i64) -> anyhow::Result<()> {
        let (file, keys) = match self.kept()? {
            Kept::Here(file) => {
                let keys = file.read()?;
                (file, keys)
            }
            Kept::Shared { file, keys } => (file, *keys),
        };
        let mut rows = Vec::new();
        let mut leaf = |name: &str, pem: Option<String>| {
            if let Some([from, ends]) = pem.and_then(|pem| validity(&pem)) {
                // They are good from an hour before they were made.
                let created = from + 3_600;
                let then = Some(("renewed", created + (ends - created) / 3 * 2));
                rows.push(Row { name: name.into(), status: "InUse", created, ends, then });
            }
        };
        let access = Kubeconfig::read(&self.data_dir.join("admin.kubeconfig"));
        let access = access.ok().and_then(|own| own.access(None).ok());
        let chain = access.and_then(|own| own.client_certificate).map(|(chain, _)| chain);
        leaf("admin", chain.and_then(|chain| String::from_utf8(chain).ok()));
        leaf("serving", file.serving_certificate());
        rows.extend(Family::ALL.iter().flat_map(|family| family_rows(&keys, *family, now)));
        match form {
            Some(Form::Json) => {
                let items: Vec<Value> = rows.iter().map(Row::to_value).collect();
                output::print_json(
                    &json!({"kind": "KeyList", "apiVersion": "cli.polder.dev/v1alpha1", "items": items}),
                )
            }
            Some(Form::Name) => {
                output::print(&rows.iter().map(|row| format!("{}\n", row.name)).collect::<String>())
            }
            None => output::print(&table(&rows, now)),
        }
    }

    fn rotate(&self, what: What, at_once: bool, now: i64) -> anyhow::Result<()> {
        let families: &[Family] = match what {
            What::Authority => &[Family::Authority],
            What::ServiceAccounts => &[Family::ServiceAccounts],
            What::FrontProxy => &[Family::FrontProxy],
            What::Serving | What::Admin => &[],
            What::All => &Family::ALL,
        };
        let request = KeyRequest {
            rotate: families.iter().map(|family| family.name().to_owned()).collect(),
            now: at_once,
            serving: matches!(what, What::Serving | What::All),
            admin: matches!(what, What::Admin | What::All),
            drop: Vec::new(),
        };
        self.change(&request, now)
    }

    /// All of them or none.
    fn drop_keys(&self, names: &[String], now: i64) -> anyhow::Result<()> {
        let parse = |name: &String| {
            let parts = name.rsplit_once('-').and_then(|(family, number)| {
                let family = Family::ALL.into_iter().find(|own| own.name() == family)?;
                Some((family.name().to_owned(), number.parse().ok()?))
            });
            parts.with_context(|| {
                format!("{name:?} cannot be dropped: write a name of `polder keys list` with a number, such as authority-1")
            })
        };
        let drop = names.iter().map(parse).collect::<anyhow::Result<_>>()?;
        self.change(&KeyRequest { drop, ..KeyRequest::default() }, now)
    }

    fn change(&self, request: &KeyRequest, now: i64) -> anyhow::Result<()> {
        let said = match self.kept()? {
            Kept::Here(file) => {
                let mut said = String::new();
                file.change(|keys| {
                    said = request.apply(keys, now)?;
                    Ok(())
                })?;
                said
            }
            Kept::Shared { .. } => request.ask(&self.data_dir)?,
        };
        output::print(&said)
    }
}

fn family_rows(keys: &AllKeys, family: Family, now: i64) -> Vec<Row> {
    let newest = keys.newest(family).map(|own| own.number);
    let row =
        |(own, standing, believed_until): (&polder_server::keys::Generation, Standing, Option<i64>)| Row {
            name: format!("{}-{}", family.name(), own.number),
            status: standing.name(),
            created: own.created,
            ends: own.expires,
            then: match (standing, believed_until) {
                (Standing::Next, _) => Some(("used", own.used_from)),
                (Standing::Old, Some(until)) => Some(("dropped", until)),
                (Standing::Used, _) if newest == Some(own.number) => {
                    Some(("rotated", own.created + (own.expires - own.created) / 3 * 2))
                }
                _ => None,
            },
        };
    keys.standings(family, now).into_iter().map(row).collect()
}

fn table(rows: &[Row], now: i64) -> String {
    let mut cells = vec![["NAME", "STATUS", "AGE", "EXPIRES", "NEXT"].map(String::from).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let then = row.then.map_or_else(|| "<none>".to_owned(), |(what, at)| format!("{what} {}", time(at)));
        vec![row.name.clone(), row.status.into(), human_age(Some(now - row.created)), time(row.ends), then]
    }));
    output::table(&cells)
}

impl Row {
    fn to_value(&self) -> Value {
        let mut status = json!({"phase": (self.status), "expires": (time(self.ends))});
        if let Some((what, at)) = self.then {
            status.set_at(&["next"], json!({"what": what, "time": (time(at))}));
        }
        json!({
            "metadata": {"name": (self.name.as_str()), "creationTimestamp": (time(self.created))},
            "status": status,
        })
    }
}
