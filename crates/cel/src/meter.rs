//! What running an expression costs, and when it has to stop.
//!
//! Three limits. *Cost* is upstream's measure, which clients see and rely on. *Work* counts what the machine really
//! does where cost does not follow it (comparing deep values, compiling patterns). *Bytes* bounds what is allocated,
//! live or not. Every one of them ends the evaluation for good: no `||` absorbs it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::value::Value;

pub type Outcome<'a> = Result<Value<'a>, Fault>;

/// Upstream's limit for one call.
pub const CALL_COST_MAX: u64 = 1_000_000;
/// Work for each unit of cost allowed, and some to begin with. A unit is some 50 ns.
const WORK_PER_COST: u64 = 10;
const WORK_BASE: u64 = 5_000_000;
/// What one evaluation may allocate over its life.
const BYTES_MAX: usize = 64 << 20;
/// The interrupt is looked at this often, in units of work.
const WORK_PER_LOOK: u64 = 4096;

/// How much an evaluation may use.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'b> {
    pub cost_max: u64,
    /// Set from elsewhere to stop.
    pub interrupt: Option<&'b AtomicBool>,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget { cost_max: CALL_COST_MAX, interrupt: None }
    }
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The expression says so: `&&`, `||` and loops may still come to a result.
    Error(Cow<'static, str>),
    /// A limit was reached.
    CostExceeded,
    Interrupted,
}

impl Fault {
    pub fn error(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::Error(text.into())
    }

    pub(crate) fn no_overload() -> Fault {
        Fault::Error(Cow::Borrowed("no such overload"))
    }

    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, Fault::Error(_))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Error(text) => text,
            Fault::CostExceeded => "operation cancelled: actual cost limit exceeded",
            Fault::Interrupted => "operation interrupted",
        })
    }
}

impl std::error::Error for Fault {}

#[derive(Debug)]
pub(crate) struct Meter<'b> {
    cost: u64,
    cost_max: u64,
    work: u64,
    work_max: u64,
    next_look: u64,
    bytes: usize,
    interrupt: Option<&'b AtomicBool>,
}

impl<'b> Meter<'b> {
    pub(crate) fn new(budget: Budget<'b>) -> Meter<'b> {
        Meter {
            cost: 0,
            cost_max: budget.cost_max,
            work: 0,
            work_max: budget.cost_max.saturating_mul(WORK_PER_COST).saturating_add(WORK_BASE),
            next_look: WORK_PER_LOOK,
            bytes: 0,
            interrupt: budget.interrupt,
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Charges cost, and the work that goes with it.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.cost_max {
            return Err(Fault::CostExceeded);
        }
        self.work(1)
    }

    /// Takes back what upstream does not count.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    pub(crate) fn work(&mut self, work: u64) -> Result<(), Fault> {
        self.work = self.work.saturating_add(work);
        if self.work < self.next_look {
            return Ok(());
        }
        self.next_look = self.work.saturating_add(WORK_PER_LOOK);
        if self.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(Fault::Interrupted);
        }
        if self.work > self.work_max { Err(Fault::CostExceeded) } else { Ok(()) }
    }

    /// Call it before allocating.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX {
            return Err(Fault::CostExceeded);
        }
        self.work(bytes as u64 / 64)
    }
}
