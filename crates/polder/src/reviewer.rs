//! The way to webhooks of the provider's own that answer reviews, by the kubeconfig that names one.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use polder_auth::{ReviewAnswer, ReviewClient, ReviewFailure};
use polder_client_http::{Access, Client, ClientError, ClientOptions, Kubeconfig, Method};

/// What is read of an answer.
const REVIEW_BYTES_MAX: usize = 1 << 20;
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// What a kubeconfig and the files it names hold, or why they cannot be read: what is the same need not be made again.
pub(crate) type Held = Result<Access, String>;

pub(crate) fn held(kubeconfig: &Path) -> Held {
    let access = Kubeconfig::read(kubeconfig).and_then(|read| read.access(None));
    access.map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}

/// Takes the path off the URL of a server that is a webhook.
pub(crate) fn split_path(access: &mut Access) -> String {
    let start = access.server.find("://").map_or(0, |at| at + 3);
    match access.server[start..].find('/') {
        Some(at) => access.server.split_off(start + at),
        None => "/".to_owned(),
    }
}

pub(crate) struct Reviewer {
    client: Client,
    path: String,
}

impl Reviewer {
    /// `patience` is for a whole answer.
    pub(crate) fn new(held: &Held, patience: Duration) -> anyhow::Result<Reviewer> {
        let mut access = held.clone().map_err(anyhow::Error::msg)?;
        let path = split_path(&mut access);
        let options = ClientOptions {
            dial_patience: DIAL_PATIENCE.min(patience),
            patience,
            answer_bytes_max: REVIEW_BYTES_MAX,
            ..ClientOptions::default()
        };
        Ok(Reviewer { client: Client::new(&access, options)?, path })
    }
}

impl ReviewClient for Reviewer {
    fn review(&self, question: Vec<u8>) -> ReviewAnswer<'_> {
        Box::pin(async move {
            let body = Some(("application/json", Bytes::from(question)));
            let answer = self.client.send(Method::POST, &self.path, body).await;
            let answer = answer.map_err(|error| {
                use ClientError::{Interrupted, TimedOut, Unreachable};
                let is_passing = matches!(error, Unreachable { .. } | TimedOut { .. } | Interrupted { .. });
                failure(is_passing, format!("{:#}", anyhow::Error::new(error)))
            })?;
            match answer.status {
                200 | 201 => Ok(answer.body.to_vec()),
                code => Err(failure(code >= 500 || code == 429, format!("the webhook answered {code}"))),
            }
        })
    }
}

fn failure(is_passing: bool, why: String) -> ReviewFailure {
    if is_passing { ReviewFailure::Passing(why) } else { ReviewFailure::Lasting(why) }
}
