use super::*;

const START: i64 = 1_800_000_000;
const YEAR: i64 = 365 * DAY;

fn fresh() -> Keys {
    let mut keys = Keys::default();
    keys.keep_up(START).unwrap();
    keys
}

/// What there is of a family, as `number:standing`.
fn standings(keys: &Keys, family: Family, now: i64) -> String {
    let all = keys.standings(family, now);
    let all = all.iter().map(|(own, standing, _)| format!("{}:{}", own.number, standing.name()));
    all.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(family: Family, steps: &[(i64, &str)]) {
    let mut keys = fresh();
    for (days, expected) in steps {
        let now = START + days * DAY;
        keys.keep_up(now).unwrap();
        assert_eq!(standings(&keys, family, now), *expected, "{} after {days} days", family.name());
        let once = keys.clone();
        keys.keep_up(now).unwrap();
        assert_eq!(keys, once, "what is done is not done again");
    }
}

#[test]
fn generations_come_and_go_by_themselves() {
    check(
        Family::Authority,
        &[
            (0, "1:InUse"),
            (2_432, "1:InUse"),
            (2_434, "1:InUse 2:Next"),
            // A kubeconfig handed out before the second was told ends now.
            (2_434 + 364, "1:InUse 2:Next"),
            (2_434 + 365, "1:Believed 2:InUse"),
            (2_434 + 366, "2:InUse"),
        ],
    );
    check(
        Family::ServiceAccounts,
        &[(0, "1:InUse"), (243, "1:InUse"), (244, "1:InUse 2:Next"), (245, "1:Believed 2:InUse")],
    );
    check(
        Family::FrontProxy,
        &[
            (2_434, "1:InUse 2:Next"),
            (2_435, "1:Believed 2:InUse"),
            (2_436, "1:Believed 2:InUse"),
            (2_437, "2:InUse"),
        ],
    );
}

#[test]
fn a_server_that_was_off_for_years_has_something_to_work_with() {
    for years in [9, 11, 40] {
        let (mut keys, now) = (fresh(), START + years * YEAR);
        keys.keep_up(now).unwrap();
        for family in Family::ALL {
            let used = keys.used(family, now).unwrap();
            assert!(
                used.expires > now || used.used_from > now - DAY,
                "{} after {years} years",
                family.name()
            );
            if years > 10 {
                assert_eq!(used.number, 2, "{}: what has ended is not used", family.name());
            }
        }
    }
}

#[test]
fn keys_of_tokens_stay_as_long_as_tokens() {
    let mut keys = fresh();
    let far = START + 100 * YEAR;
    keys.note_token(1, START + YEAR);
    assert_eq!(keys, fresh_like(&keys), "less than is known already");
    keys.note_token(1, far);
    keys.rotate(Family::ServiceAccounts, START, When::Now).unwrap();
    keys.keep_up(far).unwrap();
    assert_eq!(keys.of(Family::ServiceAccounts)[0].number, 1, "a token of it may be about");
    keys.keep_up(far + 2 * YEAR).unwrap();
    assert_ne!(keys.of(Family::ServiceAccounts)[0].number, 1);
}

/// The same with what is known at first.
fn fresh_like(keys: &Keys) -> Keys {
    let mut keys = keys.clone();
    let own = &mut keys.service_accounts[0];
    own.tokens_until = own.expires + LEAF_SECONDS;
    keys
}

#[test]
fn operators_are_faster() {
    let (mut keys, now) = (fresh(), START + DAY);
    assert_eq!(keys.rotate(Family::Authority, now, When::Told).unwrap().number, 2);
    assert_eq!(
        keys.rotate(Family::Authority, now, When::Told).unwrap().number,
        2,
        "one that waits is enough"
    );
    assert_eq!(standings(&keys, Family::Authority, now), "1:InUse 2:Next");
    keys.rotate(Family::Authority, now, When::Now).unwrap();
    assert_eq!(standings(&keys, Family::Authority, now), "1:Believed 2:InUse");
    assert!(matches!(keys.drop_generation(Family::Authority, 2, now), Err(PkiError::InUse { .. })));
    assert!(matches!(keys.drop_generation(Family::Authority, 7, now), Err(PkiError::NoGeneration { .. })));
    keys.keep_up(now + 364 * DAY).unwrap();
    assert_eq!(keys.of(Family::Authority).len(), 2, "certificates of clients are still good");
    assert_eq!(keys.drop_generation(Family::Authority, 1, now).unwrap(), [1]);
    assert_eq!(standings(&keys, Family::Authority, now), "2:InUse");
    for family in [Family::Authority, Family::ServiceAccounts] {
        for _ in 0..3 {
            keys.rotate(family, now, When::Now).unwrap();
        }
    }
    assert_eq!(standings(&keys, Family::Authority, now), "2:Believed 3:Believed 4:Believed 5:InUse");
    assert_eq!(keys.drop_generation(Family::Authority, 3, now).unwrap(), [2, 3], "2 vouches for 3");
    assert_eq!(keys.drop_generation(Family::ServiceAccounts, 3, now).unwrap(), [3]);
    assert_eq!(standings(&keys, Family::ServiceAccounts, now), "1:Believed 2:Believed 4:InUse");
    keys.rotate(Family::Authority, now, When::Told).unwrap();
    assert_eq!(keys.drop_generation(Family::Authority, 6, now).unwrap(), [6], "not used yet");
    assert_eq!(standings(&keys, Family::Authority, now), "4:Believed 5:InUse");
    assert_eq!(keys.rotate(Family::Authority, now, When::Told).unwrap().number, 7, "no number twice");
}

#[test]
fn there_are_not_too_many() {
    let mut keys = fresh();
    for _ in 1..GENERATIONS_LEN_MAX {
        keys.rotate(Family::ServiceAccounts, START, When::Now).unwrap();
    }
    assert!(matches!(
        keys.rotate(Family::ServiceAccounts, START, When::Now),
        Err(PkiError::TooMany { family: "service-accounts" })
    ));
    keys.keep_up(START + 244 * DAY).unwrap();
    assert_eq!(
        keys.of(Family::ServiceAccounts).len(),
        GENERATIONS_LEN_MAX,
        "none that is believed goes for it"
    );
}
