//! Feeding one target: makes inputs, runs them, and catches what breaks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Target, generate, mutate};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    Time(Duration),
    Runs(u64),
}

/// An input that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number of the input in its campaign.
    pub number: u64,
    pub input: Vec<u8>,
    pub message: String,
}

/// Inputs of one target, by number.
#[derive(Debug)]
pub struct Campaign<'a> {
    pub target: Target,
    pub seed: u64,
    pub seeds: &'a [Vec<u8>],
}

impl Campaign<'_> {
    /// The input with this number; the first ones are the seeds as they are.
    pub fn input(&self, number: u64) -> Vec<u8> {
        if let Some(seed) = usize::try_from(number).ok().and_then(|number| self.seeds.get(number)) {
            return seed.clone();
        }
        let random = &mut Random::new(self.seed, self.target.name, number);
        let mut input = match (self.target.make, random.below(8)) {
            (Some(make), 0..4) => make(random),
            (_, 4) | (None, 0..2) if !self.target.words.is_empty() => {
                generate::words(self.target.words, random)
            }
            _ if !self.seeds.is_empty() => random.pick(self.seeds).clone(),
            (Some(make), _) => make(random),
            _ => (0..random.below(64)).map(|_| random.byte()).collect(),
        };
        let built = self.target.make.is_some() && random.one_in(3);
        if !built {
            let other: &[u8] = if self.seeds.is_empty() { b"" } else { random.pick(self.seeds).as_slice() };
            mutate::mutate(&mut input, other, self.target.words, random);
        }
        input.truncate(crate::INPUT_LEN_MAX);
        input
    }

    /// Runs inputs until one fails or the budget is used up, and says how many ran. `before` sees each of them first.
    pub fn run(&self, budget: Budget, mut before: impl FnMut(&[u8])) -> Result<u64, Failure> {
        let started = Instant::now();
        let mut number = 0;
        loop {
            let more = match budget {
                Budget::Runs(runs) => number < runs,
                Budget::Time(time) => number == 0 || started.elapsed() < time,
            };
            if !more {
                return Ok(number);
            }
            let input = self.input(number);
            before(&input);
            run_one(self.target, &input).map_err(|message| Failure { number, input, message })?;
            number += 1;
        }
    }
}

static MESSAGE: Mutex<String> = Mutex::new(String::new());

/// Panics say what and where to [`run_one`] instead of standard error. Call it once, from `main`.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut message) = MESSAGE.lock() {
            *message = panic.to_string();
        }
    }));
}

/// Runs one input; the error is the panic's message.
pub fn run_one(target: Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_string();
        match MESSAGE.lock() {
            Ok(mut message) if !message.is_empty() => std::mem::take(&mut *message),
            _ => text,
        }
    })
}
