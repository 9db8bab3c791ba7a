//! What an operator asks of the server's keys. Where they are in a file, the command changes that. Where replicas share them, the
//! command leaves a note in the data directory of one, and the server that runs there does it for all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polder_server::keys::{Family, Keys, When};
use polder_server::{Pki, PkiError, write_private};
use serde::{Deserialize, Serialize};

/// How long the command waits for the server, which looks once a second.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
/// Longer notes are something else.
const NOTE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// Families that get a new generation, by their names.
    pub(crate) rotate: Vec<String>,
    /// It is used at once.
    pub(crate) now: bool,
    /// Certificates are made anew.
    pub(crate) serving: bool,
    pub(crate) admin: bool,
    /// Generations that are believed no more.
    pub(crate) drop: Vec<(String, u32)>,
}

/// What became of one.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    done: bool,
    said: String,
}

impl KeyRequest {
    /// Does it, all or nothing, and says what was done.
    pub(crate) fn apply(&self, keys: &mut Keys, now: i64) -> Result<String, PkiError> {
        let mut said = Vec::new();
        let when = if self.now { When::Now } else { When::Told };
        for family in self.rotate.iter().map(|name| family(name)) {
            let family = family?;
            let before = keys.newest(family).map(|own| (own.number, own.used_from));
            let newest = keys.rotate(family, now, when)?;
            let name = format!("{}-{}", family.name(), newest.number);
            let from = if newest.used_from <= now { "now".to_owned() } else { time(newest.used_from) };
            said.push(match before {
                Some((number, used_from)) if number == newest.number => match used_from == newest.used_from {
                    true => format!("{name} unchanged: it was made before, and is in use from {from}; --now uses it at once\n"),
                    false => format!("{name} was made before, in use from {from}\n"),
                },
                _ => format!("{name} rotated, in use from {from}\n"),
            });
        }
        if self.serving {
            keys.serving_from = now;
            said.push("serving rotated\n".to_owned());
        }
        if self.admin {
            keys.admin_from = now;
            said.push("admin rotated\n".to_owned());
        }
        let mut gone: Vec<(Family, u32)> = Vec::new();
        for (name, number) in &self.drop {
            let family = family(name)?;
            // It may have gone with one that was named before it.
            if !gone.contains(&(family, *number)) {
                let numbers = keys.drop_generation(family, *number, now)?;
                gone.extend(numbers.into_iter().map(|number| (family, number)));
            }
        }
        said.extend(gone.iter().map(|(family, number)| format!("{}-{number} dropped\n", family.name())));
        Ok(said.concat())
    }

    /// Asks the server that runs on a data directory, and waits for what it says.
    pub(crate) fn ask(&self, data_dir: &Path) -> anyhow::Result<String> {
        let (request, answer) = notes(data_dir);
        fs::remove_file(&answer).ok();
        write_private(&request, &serde_json::to_string(self)?)?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(text) = read(&answer)? {
                fs::remove_file(&answer).ok();
                let Answer { done, said } = serde_json::from_str(&text).context("the server's answer")?;
                anyhow::ensure!(done, "{said}");
                return Ok(said);
            }
            std::thread::sleep(PAUSE);
        }
        fs::remove_file(&request).ok();
        anyhow::bail!(
            "the keys are shared by replicas, and no server runs on {}: ask where one does",
            data_dir.display()
        )
    }

    /// Does what somebody has asked for, if anybody has. On the server's side.
    pub(crate) fn answer(pki: &Pki, data_dir: &Path, now: i64) -> anyhow::Result<()> {
        let (request, answer) = notes(data_dir);
        let Some(text) = read(&request)? else { return Ok(()) };
        // First: what cannot be done is not tried again and again.
        fs::remove_file(&request)?;
        let outcome =
            serde_json::from_str::<KeyRequest>(&text).context("this is no request").and_then(|own| {
                let said = std::cell::RefCell::new(String::new());
                pki.change_keys(&|keys| {
                    *said.borrow_mut() = own.apply(keys, now)?;
                    Ok(())
                })?;
                Ok(said.into_inner())
            });
        let answered = match outcome {
            Ok(said) => Answer { done: true, said },
            Err(error) => Answer { done: false, said: format!("{error:#}") },
        };
        write_private(&answer, &serde_json::to_string(&answered)?)?;
        Ok(())
    }
}

fn notes(data_dir: &Path) -> (PathBuf, PathBuf) {
    let directory = data_dir.join("pki");
    (directory.join("request.json"), directory.join("answer.json"))
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(found) if found.len() <= NOTE_BYTES_MAX => Ok(Some(fs::read_to_string(path)?)),
        Ok(_) => anyhow::bail!("{} is too long", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn family(name: &str) -> Result<Family, PkiError> {
    let found = Family::ALL.into_iter().find(|own| own.name() == name);
    found.ok_or_else(|| PkiError::NoGeneration { name: name.to_owned() })
}

/// As people read it.
pub(crate) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_else(|_| "<unknown>".into())
}
