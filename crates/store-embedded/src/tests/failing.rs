//! A disk that fails: what is told, and what the next start finds.

use polder_store::engine::EngineError;

use super::*;
use crate::page::faults::SYNC_FAILS;

/// What a killed process leaves is what its files hold.
pub(super) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "LOCK" {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_sync_that_fails_leaves_the_outcome_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    put(&mut engine, 1, "a", "1");
    SYNC_FAILS.set(true);
    let outcome = engine.apply(&batch(vec![write(SPACE, 2, "a", Some("2"))]));
    SYNC_FAILS.set(false);
    assert!(matches!(outcome, Err(EngineError::Unknown(_))), "{outcome:?}");
    assert_eq!(names(&*engine.reader(), &all(u64::MAX)), ["a@1"], "readers see what was there before");

    // Nothing is written any more, though the disk has recovered: revision 2 may be taken.
    let outcomes = [
        engine.apply(&batch(vec![write(SPACE, 2, "b", Some("other"))])).err(),
        engine.compact(Revision(1)).err(),
        engine.drop_space(SPACE).err(),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Some(EngineError::Failed(_))), "{outcome:?}");
    }
    let killed = tempfile::tempdir().unwrap();
    copy(directory.path(), killed.path());
    drop(engine);
    for path in [killed.path(), directory.path()] {
        let mut engine = open(path);
        assert_eq!(engine.recover().unwrap().current, Revision(2), "here it was written after all");
        assert_eq!(names(&*engine.reader(), &all(u64::MAX)), ["a@2"]);
        put(&mut engine, 3, "b", "3");
        drop(engine);
        assert_eq!(crate::verify(path).unwrap().problems, Vec::<String>::new());
    }
}
