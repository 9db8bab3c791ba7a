//! What this server signs with: three families of keys, each in generations, all in one file that is replaced as a whole. Where
//! several replicas are one server, they keep them together ([`KeyPlace`]).
//!
//! A new generation is *told* to everybody first, *used* after that, and the one before it is *believed* for as long as something it
//! signed may be about (ADR 0019). Where each of them stands follows from the clock and from four numbers of each generation; there is
//! no step that could be left half done. What is made of the keys is for [`crate::pki`].
//!
//! Invariant: there is always a generation in use. None that is believed leaves the file before its time, unless the operator says so.

mod file;

use std::collections::BTreeMap;

use rcgen::{BasicConstraints, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

pub use file::{KeyFile, validity};

use crate::pki::{PkiError, named};

pub(crate) const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;
/// How long certificates are good that one of the authorities signs.
pub(crate) const LEAF_SECONDS: i64 = 365 * DAY;
/// The longest a token of a service account may be good for.
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Generations of a family. Reached only by keys whose tokens do not end; then no more are made by themselves.
const GENERATIONS_LEN_MAX: usize = 64;

/// Keys that are turned over together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Signs the server's certificate, and those of clients. The authorities of planes are derived from it.
    Authority,
    /// The keys that tokens of service accounts are signed with are derived from it.
    ServiceAccounts,
    /// Signs the certificates by which extension servers know this one.
    FrontProxy,
}

/// How long things take in a family, in seconds.
struct Terms {
    lifetime: i64,
    /// From when it is told until it is used.
    lead: i64,
    /// The name of its certificate.
    subject: Option<&'static str>,
}

impl Family {
    pub const ALL: [Family; 3] = [Family::Authority, Family::ServiceAccounts, Family::FrontProxy];

    pub fn name(self) -> &'static str {
        match self {
            Family::Authority => "authority",
            Family::ServiceAccounts => "service-accounts",
            Family::FrontProxy => "front-proxy",
        }
    }

    fn terms(self) -> Terms {
        match self {
            // Whoever trusts the old one alone has a kubeconfig that ends before the new one is shown.
            Family::Authority => Terms { lifetime: 3_650 * DAY, lead: LEAF_SECONDS, subject: Some("polder") },
            // As long as others may keep the public keys.
            Family::ServiceAccounts => Terms { lifetime: 365 * DAY, lead: HOUR, subject: None },
            // Extension servers look at what they are told when it changes.
            Family::FrontProxy => {
                Terms { lifetime: 3_650 * DAY, lead: DAY, subject: Some("polder-front-proxy") }
            }
        }
    }
}

/// One generation. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Generation {
    pub number: u32,
    pub created: i64,
    pub used_from: i64,
    pub expires: i64,
    /// Of keys for tokens: none that was signed ends later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_until: i64,
    /// Of authorities: the certificate, in PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificate: String,
    /// The same authority, signed by the one before it: for those who know only that one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) cross: String,
    /// PKCS #8, or as many random bytes as a key is derived from.
    #[serde(with = "base64_bytes")]
    pub(crate) secret: Vec<u8>,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Generation {
    /// What signs with it. Of authorities only.
    pub(crate) fn issuer(&self) -> Result<Issuer<'static, KeyPair>, PkiError> {
        let key = KeyPair::try_from(self.secret.as_slice())?;
        Ok(Issuer::from_ca_cert_pem(&self.certificate, key)?)
    }
}

/// Where keys are kept. They are read and replaced as a whole, and nobody's change is lost by another's.
pub trait KeyPlace: Send + Sync {
    fn read(&self) -> Result<Keys, PkiError>;

    /// Changes the keys, and answers with what they are then. Nothing is written if nothing changes; the change is asked again
    /// if others were first.
    fn change(&self, change: &KeyChange<'_>) -> Result<Keys, PkiError>;
}

/// See [`KeyPlace::change`].
pub type KeyChange<'a> = dyn Fn(&mut Keys) -> Result<(), PkiError> + 'a;

/// Where a generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is told, so that everybody believes it when it is used.
    Next,
    Used,
    /// What it signed is still good.
    Old,
}

impl Standing {
    pub fn name(self) -> &'static str {
        match self {
            Standing::Next => "Next",
            Standing::Used => "InUse",
            Standing::Old => "Believed",
        }
    }
}

/// All of them, as the file has them: of each family the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Keys {
    authority: Vec<Generation>,
    service_accounts: Vec<Generation>,
    front_proxy: Vec<Generation>,
    /// Certificates of the server and of its administrator that were made before are made anew.
    #[serde(default)]
    pub serving_from: i64,
    #[serde(default)]
    pub admin_from: i64,
    /// The digest of what every plane has been told; empty before anything has changed.
    #[serde(default)]
    pub told: String,
    /// How often keys for tokens were dropped: whoever keeps such tokens has to be told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) account_drops: u32,
    /// The newest number each family has had: what was dropped is remembered by its number, so that is not given again.
    #[serde(default)]
    last: BTreeMap<String, u32>,
}

impl Keys {
    /// The first of each family.
    pub fn first(now: i64) -> Result<Keys, PkiError> {
        let mut keys = Keys::default();
        keys.keep_up(now)?;
        Ok(keys)
    }

    /// `None` when a server cannot do with it.
    pub fn from_text(text: &str) -> Option<Keys> {
        let keys: Keys = serde_json::from_str(text).ok()?;
        let is_usable = |family: &Family| (1..=GENERATIONS_LEN_MAX).contains(&keys.of(*family).len());
        Family::ALL.iter().all(is_usable).then_some(keys)
    }

    /// For those who may know which there are.
    fn without_secrets(&self) -> Keys {
        let mut keys = self.clone();
        for family in Family::ALL {
            keys.of_mut(family).iter_mut().for_each(|own| own.secret.clear());
        }
        keys
    }

    pub fn to_text(&self) -> Result<String, PkiError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| PkiError::Kept(error.into()))?;
        Ok(text + "\n")
    }

    /// All generations of a family, the oldest first.
    pub fn of(&self, family: Family) -> &[Generation] {
        match family {
            Family::Authority => &self.authority,
            Family::ServiceAccounts => &self.service_accounts,
            Family::FrontProxy => &self.front_proxy,
        }
    }

    fn of_mut(&mut self, family: Family) -> &mut Vec<Generation> {
        match family {
            Family::Authority => &mut self.authority,
            Family::ServiceAccounts => &mut self.service_accounts,
            Family::FrontProxy => &mut self.front_proxy,
        }
    }

    /// The place of the generation that is used: the newest whose time has come, or else the oldest.
    fn used_at(&self, family: Family, now: i64) -> usize {
        self.of(family).iter().rposition(|own| own.used_from <= now).unwrap_or(0)
    }

    /// The generation that is used.
    pub fn used(&self, family: Family, now: i64) -> Option<&Generation> {
        self.of(family).get(self.used_at(family, now))
    }

    pub fn newest(&self, family: Family) -> Option<&Generation> {
        self.of(family).last()
    }

    /// Where each generation of a family stands, and until when it is believed if it is an old one.
    pub fn standings(&self, family: Family, now: i64) -> Vec<(&Generation, Standing, Option<i64>)> {
        let used = self.used_at(family, now);
        let standing = |(at, own)| match used.cmp(&at) {
            std::cmp::Ordering::Less => (own, Standing::Next, None),
            std::cmp::Ordering::Equal => (own, Standing::Used, None),
            std::cmp::Ordering::Greater => (own, Standing::Old, self.believed_until(family, at)),
        };
        self.of(family).iter().enumerate().map(standing).collect()
    }

    /// The certificates of a family that others should know. In this order because some read only the first: whoever knows the
    /// oldest is led on from there.
    pub fn bundle(&self, family: Family) -> String {
        self.of(family).iter().map(|own| own.certificate.as_str()).collect()
    }

    /// Certificates that go with one of the generation in use: those who know only older ones find the way from there.
    pub(crate) fn crosses(&self, family: Family, now: i64) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        let own = self.of(family).get(..=self.used_at(family, now)).unwrap_or_default();
        let crosses = own.iter().skip(1).rev().map(|own| own.cross.as_str());
        let crosses = crosses.take_while(|cross| !cross.is_empty());
        let crosses: Result<Vec<_>, _> =
            crosses.map(|pem| CertificateDer::from_pem_slice(pem.as_bytes())).collect();
        crosses.map_err(|error| PkiError::Tls(Box::new(error)))
    }

    /// Until when what a generation signed may be about; `None` if there is none after it.
    fn believed_until(&self, family: Family, at: usize) -> Option<i64> {
        let (own, next) = (self.of(family).get(at)?, self.of(family).get(at + 1)?);
        Some(match family {
            // Certificates of clients are signed by the newest from the moment it is there.
            Family::Authority => next.used_from.max(next.created + LEAF_SECONDS) + HOUR,
            Family::ServiceAccounts => next.used_from.max(own.tokens_until) + HOUR,
            Family::FrontProxy => next.used_from + DAY,
        })
    }

    /// Does what is due: a new generation at two thirds of the newest one's life, and those gone whose time is over.
    pub(crate) fn keep_up(&mut self, now: i64) -> Result<(), PkiError> {
        for family in Family::ALL {
            let is_due = |own: &Generation| own.created + (own.expires - own.created) / 3 * 2 <= now;
            let is_due = self.newest(family).is_none_or(is_due);
            if is_due && self.of(family).len() < GENERATIONS_LEN_MAX {
                self.rotate(family, now, When::Told)?;
            }
            while self.used_at(family, now) > 0
                && self.believed_until(family, 0).is_some_and(|until| until < now)
            {
                self.of_mut(family).remove(0);
            }
        }
        Ok(())
    }

    /// Adds a generation. With one that is told and not yet used, that one is used at once if so asked.
    pub fn rotate(&mut self, family: Family, now: i64, when: When) -> Result<&Generation, PkiError> {
        if let Some(waiting) = self.of_mut(family).last_mut().filter(|newest| newest.used_from > now) {
            if when == When::Now {
                waiting.used_from = now;
            }
        } else if self.of(family).len() < GENERATIONS_LEN_MAX {
            let made = self.made(family, now, when)?;
            self.last.insert(family.name().into(), made.number);
            self.of_mut(family).push(made);
        } else {
            return Err(PkiError::TooMany { family: family.name() });
        }
        self.newest(family).ok_or(PkiError::TooMany { family: family.name() })
    }

    fn made(&self, family: Family, now: i64, when: When) -> Result<Generation, PkiError> {
        let Terms { lifetime, lead, subject } = family.terms();
        let before = self.newest(family);
        let last = self.last.get(family.name()).copied().unwrap_or_default();
        let number = before.map_or(0, |before| before.number).max(last) + 1;
        let used_from = match (before, when) {
            (None, _) | (_, When::Now) => now,
            // One that is about to end is not waited for.
            (Some(before), When::Told) => (now + lead).min(before.expires - DAY).max(now),
        };
        let expires = now + lifetime;
        let key = KeyPair::generate()?;
        let (mut certificate, mut cross) = (String::new(), String::new());
        if let Some(subject) = subject {
            // Each by a name of its own: some look for an authority by its name alone.
            let subject = if number == 1 { subject.to_owned() } else { format!("{subject}-{number}") };
            let mut params = named(&[(DnType::CommonName, &subject)], now, lifetime);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            certificate = params.self_signed(&key)?.pem();
            if let Some(before) = before {
                cross = params.signed_by(&key, &before.issuer()?)?.pem();
            }
        }
        let tokens_until = if family == Family::ServiceAccounts { expires + LEAF_SECONDS } else { 0 };
        let secret = key.serialize_der();
        Ok(Generation { number, created: now, used_from, expires, tokens_until, certificate, cross, secret })
    }

    /// Believes a generation no more, whatever it signed. The one in use cannot go. An older authority vouches for those after it, so
    /// it goes too. Answers with the numbers of those that are gone.
    pub fn drop_generation(&mut self, family: Family, number: u32, now: i64) -> Result<Vec<u32>, PkiError> {
        let name = || format!("{}-{number}", family.name());
        let used = self.used_at(family, now);
        let at = self.of(family).iter().position(|own| own.number == number);
        let at = at.ok_or_else(|| PkiError::NoGeneration { name: name() })?;
        let vouch = family != Family::ServiceAccounts;
        let gone = match at.cmp(&used) {
            std::cmp::Ordering::Equal => return Err(PkiError::InUse { name: name() }),
            std::cmp::Ordering::Less if vouch => 0..=at,
            _ => at..=at,
        };
        if family == Family::ServiceAccounts {
            self.account_drops = self.account_drops.saturating_add(1);
        }
        Ok(self.of_mut(family).drain(gone).map(|own| own.number).collect())
    }

    /// Notes that a token was signed that ends late. Whoever signs does so before it is given out.
    pub(crate) fn note_token(&mut self, number: u32, ends: i64) {
        let own = self.service_accounts.iter_mut().find(|own| own.number == number);
        if let Some(own) = own.filter(|own| own.tokens_until < ends) {
            // More than is asked for: the next such token need not be noted.
            own.tokens_until = ends.saturating_add(LEAF_SECONDS);
        }
    }

    /// Keys from when each was in a file of its own.
    pub(crate) fn imported(
        authority: (String, Vec<u8>, [i64; 2]),
        accounts: Option<Vec<u8>>,
        front_proxy: Option<(String, Vec<u8>, [i64; 2])>,
        now: i64,
    ) -> Keys {
        let of = |(certificate, secret, [created, expires]): (String, Vec<u8>, [i64; 2])| {
            let (number, used_from, tokens_until, cross) = (1, created, 0, String::new());
            Generation { number, created, used_from, expires, tokens_until, certificate, cross, secret }
        };
        let mut service_accounts = Vec::new();
        if let Some(secret) = accounts {
            let own = of((String::new(), secret, [now, now + Family::ServiceAccounts.terms().lifetime]));
            // Nobody has noted how long its tokens are good.
            service_accounts.push(Generation { tokens_until: now + TOKEN_SECONDS_MAX, ..own });
        }
        let front_proxy = front_proxy.into_iter().map(of).collect();
        Keys { authority: vec![of(authority)], service_accounts, front_proxy, ..Keys::default() }
    }
}

/// When a new generation is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After everybody has been told, and had time to listen.
    Told,
    Now,
}

mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(|_| D::Error::custom("not base64"))
    }
}

#[cfg(test)]
mod tests;
