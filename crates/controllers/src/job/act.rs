//! One look at a job: pods come and go, what has ended is counted, and the status tells.

use std::collections::HashSet;
use std::time::Duration;

use polder_client::resource::{JOBS, PODS};
use polder_client::slice::may_make;
use polder_client::{Delete, InPlane, Next};
use polder_model::{SmolStr, Status, Value};

use super::facts::{Facts, completions, count};
use super::manage::{Step, manage};
use super::orphan::remove_finalizer;
use super::verdict::{End, deadline_in, verdict};
use super::{FINALIZER, is_suspended, track};
use crate::recorder::Recorder;
use crate::workload::claim::Claimant;
use crate::workload::kind::JOB;
use crate::workload::{Meta as _, batch, events, meta, pod};

/// A job while it is looked at.
struct Look<'a> {
    plane: &'a InPlane,
    recorder: &'a Recorder,
    job: &'a Value,
    facts: Facts,
    status: Value,
    active: i64,
    ready: i64,
    terminating: i64,
    /// Pods that lost their finalizer on the way and are not counted.
    freed: HashSet<SmolStr>,
    failure: Option<Status>,
    more: bool,
    /// There was no room for its pods.
    is_aside: bool,
    wait: Option<i64>,
}

pub(super) async fn reconcile(plane: &InPlane, recorder: &Recorder, job: &Value) -> Result<Next, Status> {
    let selector = meta::selector_of(job);
    let claimant = Claimant { kind: &JOB, object: job, selector: &selector, finalizer: Some(FINALIZER) };
    let found = plane.list_selected(&PODS, job.namespace(), selector.clone()).await?;
    let pods = claimant.claim(plane, &PODS, found).await?;
    let now = plane.client.now();
    let facts = Facts::gather(job, pods, now);
    let mut look = Look {
        plane,
        recorder,
        job,
        status: job.get("status").cloned().unwrap_or_default(),
        active: count(facts.active.len()),
        ready: facts.ready,
        terminating: facts.terminating,
        facts,
        freed: HashSet::new(),
        failure: None,
        more: false,
        is_aside: false,
        wait: None,
    };
    if !is_suspended(job) && look.status.get("startTime").is_none_or(Value::is_null) {
        look.status.set_at(&["startTime"], meta::time(now));
    }
    let end = match verdict(job, &look.facts) {
        Some(end) => look.stop(end).await,
        None => look.go_on().await,
    };
    look.tell(end).await
}

impl Look<'_> {
    /// The job has come to its end: pods that run are deleted. No end as long as there are some.
    async fn stop(&mut self, end: End) -> Option<End> {
        let pods = &self.facts.active[..self.facts.active.len().min(batch::TURN_LEN_MAX)];
        let (plane, job) = (self.plane, self.job);
        let gone = batch::each(pods, async |number| {
            let one = &pods[number];
            let only = Delete { uid: Some(SmolStr::new(one.uid())), ..Delete::default() };
            plane.delete(&PODS, job.namespace(), one.name(), only).await?;
            Ok((SmolStr::new(one.name()), pod::is_ready(one)))
        })
        .await;
        let names = gone.made.iter().map(|(name, _)| name.as_str());
        events::deleted(plane, self.recorder, job, names, gone.failure.as_ref()).await;
        let deleted = count(gone.made.len());
        let is_all = deleted == self.active;
        self.active -= deleted;
        self.terminating += deleted;
        self.ready -= count(gone.made.iter().filter(|(_, ready)| *ready).count());
        self.more = !is_all && gone.failure.is_none();
        self.failure = gone.failure;
        is_all.then_some(end)
    }

    /// Pods come and go; the end may have come by that.
    async fn go_on(&mut self) -> Option<End> {
        let (job, now) = (self.job, self.facts.now);
        let mut with_start = job.clone();
        with_start.set_at(&["status"], self.status.clone());
        self.wait = deadline_in(&with_start, now).map(|seconds| seconds.max(1));
        if job.is_terminating() {
            return None;
        }
        match manage(job, &self.facts) {
            Step::Rest => {}
            Step::Wait(seconds) => self.wait = Some(self.wait.map_or(seconds, |wait| wait.min(seconds))),
            Step::Delete(pods) => self.delete(&pods).await,
            Step::Create(pods) => self.create(&pods).await,
        }
        let succeeded = self.facts.succeeded;
        let is_complete = self.active == 0
            && completions(job).map_or(succeeded > 0, |completions| succeeded >= completions);
        if is_complete {
            return End::completed();
        }
        if is_suspended(job) {
            if track::put_condition(&mut self.status, "Suspended", true, "JobSuspended", "Job suspended", now)
            {
                self.recorder.normal(self.plane, job, "Suspended", "Job suspended").await;
            }
        } else if track::put_condition(&mut self.status, "Suspended", false, "JobResumed", "Job resumed", now)
        {
            self.recorder.normal(self.plane, job, "Resumed", "Job resumed").await;
            self.status.set_at(&["startTime"], meta::time(now));
        }
        None
    }

    /// Deletes pods that are not to be counted.
    async fn delete(&mut self, pods: &[std::sync::Arc<Value>]) {
        let (plane, job) = (self.plane, self.job);
        let pods = &pods[..pods.len().min(batch::TURN_LEN_MAX)];
        let gone = batch::each(pods, async |number| {
            let one = &pods[number];
            if one.has_finalizer(FINALIZER) {
                remove_finalizer(plane, one).await?;
            }
            let only = Delete { uid: Some(SmolStr::new(one.uid())), ..Delete::default() };
            plane.delete(&PODS, job.namespace(), one.name(), only).await?;
            Ok((SmolStr::new(one.name()), SmolStr::new(one.uid()), pod::is_ready(one)))
        })
        .await;
        let names = gone.made.iter().map(|(name, ..)| name.as_str());
        events::deleted(plane, self.recorder, job, names, gone.failure.as_ref()).await;
        let deleted = count(gone.made.len());
        self.active -= deleted;
        self.terminating += deleted;
        self.ready -= count(gone.made.iter().filter(|(.., ready)| *ready).count());
        self.freed.extend(gone.made.into_iter().map(|(_, uid, _)| uid));
        self.more = pods.len() >= batch::TURN_LEN_MAX;
        self.failure = gone.failure;
    }

    async fn create(&mut self, pods: &[Value]) {
        let (plane, job) = (self.plane, self.job);
        let create = async |number: usize| plane.create(&PODS, job.namespace(), pods[number].clone()).await;
        let room = may_make(pods.len());
        self.is_aside = room.is_none();
        let room = room.unwrap_or_default();
        let made = batch::slow_start(room, create).await;
        let names = made.made.iter().map(|pod| pod.name());
        events::created(plane, self.recorder, job, names, made.failure.as_ref()).await;
        self.active += count(made.made.len());
        self.more = pods.len() > room || pods.len() >= batch::TURN_LEN_MAX;
        self.failure = made.failure;
    }

    /// Writes down what has ended, frees it, counts it.
    async fn tell(mut self, end: Option<End>) -> Result<Next, Status> {
        let now = self.facts.now;
        self.facts.pods.retain(|one| !self.freed.contains(one.uid()));
        let mut open: HashSet<SmolStr> = (self.facts.pods.iter())
            .filter(|one| one.has_finalizer(FINALIZER))
            .map(|one| SmolStr::new(one.uid()))
            .collect();
        track::put_count(&mut self.status, "active", self.active);
        self.status.set_at(&["ready"], self.ready.max(0));
        self.status.set_at(&["terminating"], self.terminating);
        track::count_noted(&mut self.status, &open);
        let tracked = track::note(self.job, &self.facts, end.as_ref(), &mut self.status);
        if let Some(end) = &end {
            track::tell_end(&mut self.status, end, now);
        }
        let mut job = write(self.plane, self.job.clone(), &self.status).await?;

        let free = &tracked.free;
        let plane = self.plane;
        let freed = batch::each(free, async |number| remove_finalizer(plane, &free[number]).await).await;
        open.retain(|uid| !freed.made.contains(uid));
        track::count_noted(&mut self.status, &open);
        if let Some(failure) = freed.failure {
            write(plane, job, &self.status).await?;
            return Err(failure);
        }
        if let Some(end) = end.filter(|_| !tracked.is_cut)
            && track::finish(&mut self.status, &end, self.terminating, now)
        {
            job = write(plane, job, &self.status).await?;
            if end.is_success {
                self.recorder.normal(plane, &job, "Completed", "Job completed").await;
            } else {
                self.recorder.warning(plane, &job, &end.reason, &end.message).await;
            }
            return Ok(Next::Done);
        }
        write(plane, job, &self.status).await?;
        Ok(match self.failure {
            Some(failure) if crate::meta::is_terminating(&failure) => Next::Done,
            // An event tells of it.
            Some(_) => Next::Later,
            None if self.is_aside => Next::Aside,
            None if self.more || tracked.is_cut => Next::Again,
            None => self.wait.map_or(Next::Done, |seconds| {
                Next::After(Duration::from_secs(seconds.max(1).unsigned_abs()))
            }),
        })
    }
}

/// Writes a status if it says something new.
async fn write(plane: &InPlane, mut job: Value, status: &Value) -> Result<Value, Status> {
    if job.get("status") == Some(status) {
        return Ok(job);
    }
    job.set_at(&["status"], status.clone());
    plane.update_status(&JOBS, job).await
}
