//! A webhook of the provider's that knows tokens: it is asked with a `TokenReview`, and what it says is remembered for a while.
//!
//! It is asked last, so it never sees a token of ours. However many strange tokens come, a bounded number of questions is
//! under way; the tokens themselves are not kept.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use polder_model::{Recent, SmolStr, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::waiting::Waiting;
use crate::UserInfo;
use crate::review::ReviewClient;

/// Answers that are remembered.
const ANSWERS_LEN_MAX: usize = 8 * 1024;
/// Longer tokens are not asked about.
const TOKEN_LEN_MAX: usize = 16 * 1024;
/// Of what a webhook says about somebody.
const GROUPS_LEN_MAX: usize = 1024;
/// Questions under way, and those who wait for their turn.
const QUESTIONS_MAX: usize = 64;
const WAITING_MAX: usize = 1024;
/// How long a question may take.
const QUESTION_MAX: Duration = Duration::from_secs(10);

/// Until when it is remembered, and who it is.
type Answer = (i64, Option<UserInfo>);

/// The webhook, and what it said lately.
pub struct TokenWebhook {
    reviewer: Arc<dyn ReviewClient>,
    remember_seconds: i64,
    answers: Mutex<Recent<[u8; 32], Answer>>,
    places: Semaphore,
    waiting: AtomicUsize,
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenWebhook").finish_non_exhaustive()
    }
}

impl TokenWebhook {
    pub fn new(reviewer: Arc<dyn ReviewClient>, remember_seconds: i64) -> TokenWebhook {
        TokenWebhook {
            reviewer,
            remember_seconds,
            answers: Mutex::new(Recent::new(ANSWERS_LEN_MAX)),
            places: Semaphore::new(QUESTIONS_MAX),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Who the webhook says a token is of. Nobody when it cannot be asked: that is not remembered.
    pub(super) async fn user(&self, token: &str, audience: &str, clock: fn() -> i64) -> Option<UserInfo> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let mut digest = Sha256::new();
        digest.update(Sha256::digest(token));
        digest.update(audience);
        let key: [u8; 32] = digest.finalize().into();
        if let Some((until, answer)) = self.answers.lock().get(&key)
            && clock() < until
        {
            return answer;
        }
        let asked = match Waiting::enter(&self.waiting, WAITING_MAX) {
            Some(_waiting) => tokio::time::timeout(QUESTION_MAX, self.ask(token, audience)).await,
            None => Ok(Err("too many tokens wait to be asked about".into())),
        };
        match asked.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(answer) => {
                let until = clock().saturating_add(self.remember_seconds);
                drop(self.answers.lock().insert(key, (until, answer.clone()), 1));
                answer
            }
            Err(why) => {
                tracing::warn!(why, "cannot ask the token webhook");
                None
            }
        }
    }

    async fn ask(&self, token: &str, audience: &str) -> Result<Option<UserInfo>, String> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        });
        let answer = self.reviewer.review(question.to_vec()).await?;
        read(&answer, audience)
    }
}

/// What an answer says.
fn read(answer: &[u8], audience: &str) -> Result<Option<UserInfo>, String> {
    let answer = Value::parse(answer).map_err(|_| "the answer is no JSON".to_owned())?;
    let status = answer.get("status").ok_or("the answer has no status")?;
    if status.get("authenticated") != Some(&Value::Bool(true)) {
        if let Some(error) = status.str_at(&["error"]).filter(|error| !error.is_empty()) {
            return Err(polder_model::field::bounded(error));
        }
        return Ok(None);
    }
    // One that knows nothing of audiences means us.
    let audiences = status.array_at(&["audiences"]);
    if !audiences.is_empty() && !audiences.iter().any(|one| one.as_str() == Some(audience)) {
        return Ok(None);
    }
    let name = status.str_at(&["user", "username"]).unwrap_or_default();
    let texts = |value: &Value| {
        let all = value.as_array().unwrap_or_default().iter().filter_map(Value::as_str);
        all.take(GROUPS_LEN_MAX).map(SmolStr::new).collect::<Vec<_>>()
    };
    if name.is_empty() {
        return Err("the answer names nobody".into());
    }
    let groups = status.at(&["user", "groups"]).map(texts).unwrap_or_default();
    let mut user = UserInfo::authenticated(name, groups);
    user.uid = SmolStr::new(status.str_at(&["user", "uid"]).unwrap_or_default());
    if let Some(extra) = status.at(&["user", "extra"]).and_then(Value::as_object) {
        user.extra =
            extra.iter().take(GROUPS_LEN_MAX).map(|(key, values)| (key.clone(), texts(values))).collect();
    }
    Ok(Some(user))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::review::ReviewAnswer;

    static NOW: AtomicI64 = AtomicI64::new(0);

    fn clock() -> i64 {
        NOW.load(Ordering::Relaxed)
    }

    struct Fake {
        asked: AtomicUsize,
        is_dead: bool,
    }

    impl ReviewClient for Fake {
        fn review(&self, question: Vec<u8>) -> ReviewAnswer<'_> {
            Box::pin(async move {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let question = Value::parse(&question).unwrap();
                let known = question.str_at(&["spec", "token"]) == Some("good");
                if self.is_dead {
                    return Err("dead".into());
                }
                Ok(json!({"status": {"authenticated": known, "user": {"username": "ann", "groups": ["dev"]}}}).to_vec())
            })
        }
    }

    #[tokio::test]
    async fn answers_are_remembered_for_a_while() {
        for is_dead in [false, true] {
            let fake = Arc::new(Fake { asked: AtomicUsize::new(0), is_dead });
            let webhook = TokenWebhook::new(fake.clone(), 120);
            let asked = || fake.asked.load(Ordering::Relaxed);
            for _ in 0..3 {
                assert_eq!(webhook.user("good", "a", clock).await.is_some(), !is_dead);
                assert!(webhook.user("bad", "a", clock).await.is_none());
            }
            assert_eq!(asked(), if is_dead { 6 } else { 2 });
            webhook.user("good", "other audience", clock).await;
            NOW.fetch_add(120, Ordering::Relaxed);
            webhook.user("good", "a", clock).await;
            assert_eq!(asked(), if is_dead { 8 } else { 4 });
        }
        let dead = Arc::new(Fake { asked: AtomicUsize::new(0), is_dead: true });
        assert!(TokenWebhook::new(dead, 1).user(&"x".repeat(TOKEN_LEN_MAX + 1), "a", clock).await.is_none());
    }

    #[test]
    fn what_answers_mean() {
        let user = |status: Value| read(&json!({"status": status}).to_vec(), "here");
        let ann = json!({"username": "ann", "uid": "1", "groups": ["g"], "extra": {"a.io/b": ["c"]}});
        let found = user(json!({"authenticated": true, "user": (ann.clone())})).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str(), found.home), ("ann", "1", None));
        assert!(found.in_group("g") && found.extra == [("a.io/b".into(), vec!["c".into()])]);
        assert_eq!(
            user(json!({"authenticated": true, "user": (ann.clone()), "audiences": ["there"]})),
            Ok(None)
        );
        assert!(
            user(json!({"authenticated": true, "user": ann, "audiences": ["there", "here"]}))
                .unwrap()
                .is_some()
        );
        assert_eq!(user(json!({"authenticated": false})), Ok(None));
        assert!(user(json!({"authenticated": true, "user": {}})).is_err());
        assert!(user(json!({"error": "x"})).is_err());
        assert!(read(b"{}", "here").is_err() && read(b"<html>", "here").is_err());
    }
}
