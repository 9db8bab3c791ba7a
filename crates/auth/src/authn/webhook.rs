//! A webhook of the provider's that knows tokens: it is asked with a `TokenReview`, and what it says is remembered for a while.
//!
//! It is asked last, so it never sees a token of ours. However many strange tokens come, a bounded number of questions is
//! under way, and planes take turns in asking; the tokens themselves are not kept. Tokens that nobody knows are remembered apart from
//! those of somebody, so that they push none of those out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use polder_model::{PlaneId, Recent, SmolStr, Value, json};
use sha2::{Digest as _, Sha256};

use super::places::Places;
use crate::UserInfo;
use crate::review::ReviewClient;

/// Answers that are remembered.
const ANSWERS_LEN_MAX: usize = 8 * 1024;
/// Longer tokens are not asked about.
const TOKEN_LEN_MAX: usize = 16 * 1024;
/// Of what a webhook says about somebody.
const GROUPS_LEN_MAX: usize = 1024;
/// Questions under way, those for one plane, and those of a plane who wait for their turn.
const QUESTIONS_MAX: usize = 64;
const PLANE_QUESTIONS_MAX: usize = 16;
const PLANE_WAITING_MAX: usize = 64;
/// Requests to planes that there are not count as one plane's: no plane has this number.
const NO_PLANE: PlaneId = PlaneId(0);
/// How long a question may take.
const QUESTION_MAX: Duration = Duration::from_secs(10);

/// The webhook, and what it said lately.
pub struct TokenWebhook {
    reviewer: Arc<dyn ReviewClient>,
    remember_seconds: i64,
    /// By digest, until when it is remembered: who a token is of, and that it is nobody's.
    known: Mutex<Recent<[u8; 32], (i64, UserInfo)>>,
    unknown: Mutex<Recent<[u8; 32], i64>>,
    places: Arc<Places>,
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
            known: Mutex::new(Recent::new(ANSWERS_LEN_MAX)),
            unknown: Mutex::new(Recent::new(ANSWERS_LEN_MAX)),
            places: Places::new(QUESTIONS_MAX, PLANE_QUESTIONS_MAX, PLANE_WAITING_MAX),
        }
    }

    /// Who the webhook says a token is of. Nobody when it cannot be asked: that is not remembered.
    pub(super) async fn user(
        &self,
        plane: Option<PlaneId>,
        token: &str,
        audience: &str,
        clock: fn() -> i64,
    ) -> Option<UserInfo> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let mut digest = Sha256::new();
        digest.update(Sha256::digest(token));
        digest.update(audience);
        let key: [u8; 32] = digest.finalize().into();
        if let Some((until, user)) = self.known.lock().get(&key)
            && clock() < until
        {
            return Some(user);
        }
        if self.unknown.lock().get(&key).is_some_and(|until| clock() < until) {
            return None;
        }
        let asked = async {
            match self.places.enter(plane.unwrap_or(NO_PLANE)).await {
                Some(_place) => self.ask(token, audience).await,
                None => Err("too many tokens of one plane wait to be asked about".into()),
            }
        };
        let asked = tokio::time::timeout(QUESTION_MAX, asked).await;
        match asked.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(answer) => {
                let until = clock().saturating_add(self.remember_seconds);
                match &answer {
                    Some(user) => drop(self.known.lock().insert(key, (until, user.clone()), 1)),
                    None => drop(self.unknown.lock().insert(key, until, 1)),
                }
                answer
            }
            Err(why) => {
                tracing::warn!(why, "cannot ask the token webhook");
                None
            }
        }
    }

    async fn ask(&self, token: &str, audience: &str) -> Result<Option<UserInfo>, String> {
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        });
        let answer = self.reviewer.review(question.to_vec()).await.map_err(|failure| failure.to_string())?;
        read_token_review(&answer, audience)
    }
}

/// What an answer says.
pub fn read_token_review(answer: &[u8], audience: &str) -> Result<Option<UserInfo>, String> {
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
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

    use super::*;
    use crate::review::{ReviewAnswer, ReviewFailure};

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
                    return Err(ReviewFailure::Passing("dead".into()));
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
                assert_eq!(webhook.user(None, "good", "a", clock).await.is_some(), !is_dead);
                assert!(webhook.user(None, "bad", "a", clock).await.is_none());
            }
            assert_eq!(asked(), if is_dead { 6 } else { 2 });
            webhook.user(None, "good", "other audience", clock).await;
            NOW.fetch_add(120, Ordering::Relaxed);
            webhook.user(None, "good", "a", clock).await;
            assert_eq!(asked(), if is_dead { 8 } else { 4 });
        }
        let dead = Arc::new(Fake { asked: AtomicUsize::new(0), is_dead: true });
        assert!(
            TokenWebhook::new(dead, 1).user(None, &"x".repeat(TOKEN_LEN_MAX + 1), "a", clock).await.is_none()
        );
    }

    /// Answers when it is told to.
    struct Slow(tokio::sync::Semaphore);

    impl ReviewClient for Slow {
        fn review(&self, _question: Vec<u8>) -> ReviewAnswer<'_> {
            Box::pin(async move {
                self.0.acquire().await.unwrap().forget();
                Ok(json!({"status": {"authenticated": true, "user": {"username": "ann"}}}).to_vec())
            })
        }
    }

    #[tokio::test]
    async fn tokens_of_one_plane_leave_places_for_others() {
        let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0)));
        let webhook = TokenWebhook::new(slow.clone(), 120);
        let flood: Vec<String> = (0..PLANE_WAITING_MAX + 100).map(|number| format!("odd-{number}")).collect();
        let mut flood: Vec<_> =
            flood.iter().map(|token| Box::pin(webhook.user(Some(PlaneId(7)), token, "a", clock))).collect();
        let mut refused = 0;
        std::future::poll_fn(|context| {
            flood.retain_mut(|one| {
                let is_pending = one.as_mut().poll(context).is_pending();
                refused += usize::from(!is_pending);
                is_pending
            });
            std::task::Poll::Ready(())
        })
        .await;
        assert!(refused >= 100 - PLANE_QUESTIONS_MAX, "{refused}: those too many are refused at once");
        let mut other = std::pin::pin!(webhook.user(Some(PlaneId(8)), "good", "a", clock));
        std::future::poll_fn(|context| {
            assert!(other.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        // Those of the flood that are being asked, and the other one: nobody whose turn has not come.
        slow.0.add_permits(PLANE_QUESTIONS_MAX + 1);
        assert!(other.await.is_some());
    }

    #[tokio::test]
    async fn strange_tokens_push_nobody_out() {
        let fake = Arc::new(Fake { asked: AtomicUsize::new(0), is_dead: false });
        let webhook = TokenWebhook::new(fake.clone(), i64::from(i32::MAX));
        webhook.user(None, "good", "a", clock).await;
        for number in 0..2 * ANSWERS_LEN_MAX {
            webhook.user(None, &number.to_string(), "a", clock).await;
        }
        let before = fake.asked.load(Ordering::Relaxed);
        assert!(webhook.user(None, "good", "a", clock).await.is_some());
        assert_eq!(fake.asked.load(Ordering::Relaxed), before);
    }

    #[test]
    fn what_answers_mean() {
        let user = |status: Value| read_token_review(&json!({"status": status}).to_vec(), "here");
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
        assert!(read_token_review(b"{}", "here").is_err() && read_token_review(b"<html>", "here").is_err());
    }
}
