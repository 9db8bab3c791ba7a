//! Every seed and a fixed number of made inputs through every target; the same ones in every run.

use std::time::Instant;

use polder_fuzz::campaign::{Budget, Campaign, run_one};
use polder_fuzz::{corpus, targets};

/// Enough to notice what is broken, few enough for every test run.
const RUNS: u64 = 600;

#[test]
fn every_target_keeps_its_promises() {
    for target in targets::ALL {
        let started = Instant::now();
        let seeds: Vec<Vec<u8>> =
            corpus::seeds(target.name).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
        let campaign = Campaign { target: *target, seed: 1, seeds: &seeds };
        if let Err(failure) = campaign.run(Budget::Runs(RUNS), |_| {}) {
            let input = failure.input.escape_ascii();
            panic!("{} at input {}: {}\ninput: {input}", target.name, failure.number, failure.message);
        }
        let accepted = polder_fuzz::take_accepted();
        println!("{:<24} {accepted:>4} accepted, {:?}", target.name, started.elapsed());
        assert!(accepted >= RUNS / 20, "{}: only {accepted} of {RUNS} inputs were accepted", target.name);
    }
}

#[test]
fn seeds_belong_to_targets_and_are_small() {
    for entry in std::fs::read_dir(corpus::home().join("corpus")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(targets::ALL.iter().any(|target| target.name == name), "{name} is no target");
        for (path, bytes) in corpus::seeds(&name).unwrap() {
            assert!(bytes.len() <= polder_fuzz::INPUT_LEN_MAX, "{} is too long", path.display());
        }
    }
}

#[test]
fn inputs_follow_from_seed_and_number() {
    for target in targets::ALL.iter().filter(|target| target.name != "certificate") {
        let campaign = |seed| Campaign { target: *target, seed, seeds: &[] };
        let inputs = |seed| (0..50).map(|number| campaign(seed).input(number)).collect::<Vec<_>>();
        assert_eq!(inputs(7), inputs(7), "{}", target.name);
        assert_ne!(inputs(7), inputs(8), "{}", target.name);
    }
}

#[test]
fn a_broken_promise_is_noticed() {
    let mut target = targets::ALL[0];
    target.run = |data| assert!(!data.contains(&b'%'), "a percent sign");
    let failure = Campaign { target, seed: 1, seeds: &[] }.run(Budget::Runs(10_000), |_| {}).unwrap_err();
    assert!(failure.input.contains(&b'%') && failure.message.contains("a percent sign"));
    assert!(run_one(target, b"%").is_err() && run_one(target, b"").is_ok());
}
