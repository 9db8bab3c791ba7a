//! docs/SPECIFICATION.md names a test for every promise, docs/SECURITY.md for every attack. This checks that the tests exist, so that
//! the tables cannot rot.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Where the tests of each word in the table are.
    const HOMES: &[(&str, &str)] = &[
        ("model", "crates/model"),
        ("cel", "crates/cel"),
        ("machinery", "crates/machinery"),
        ("store", "crates/store"),
        ("conformance", "crates/store/src/conformance"),
        ("store-embedded", "crates/store-embedded"),
        ("store-etcd", "crates/store-etcd"),
        ("store-postgres", "crates/store-postgres"),
        ("auth", "crates/auth"),
        ("admission", "crates/admission"),
        ("client", "crates/client"),
        ("client-http", "crates/client-http"),
        ("controllers", "crates/controllers"),
        ("registry", "crates/registry"),
        ("server", "crates/server"),
        ("polder", "crates/polder/src"),
        ("e2e", "crates/polder/tests/e2e"),
        ("kube-rs", "tests/kube-rs"),
        ("fuzz", "fuzz"),
        ("xtask", "xtask"),
    ];

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// All Rust files below a folder, with their text.
    fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }

    /// Whether a test, or a module or file of tests, has this name. `module::test` is a test in a path with that part.
    fn exists(name: &str, sources: &[(PathBuf, String)]) -> bool {
        let mut parts: Vec<&str> = name.split("::").collect();
        let last = parts.pop().unwrap_or_default();
        if let Some(names) = last.strip_prefix('{').and_then(|names| names.strip_suffix('}')) {
            return names.split(", ").all(|one| exists(one, sources));
        }
        let in_path = |path: &Path| {
            let path = path.to_string_lossy();
            parts.iter().all(|part| *part == "tests" || path.contains(part))
        };
        let function = format!("fn {last}(");
        let module = last.trim_start_matches("tests/");
        sources.iter().filter(|(path, _)| in_path(path)).any(|(path, text)| {
            let is_module = path.file_stem().is_some_and(|stem| stem == module)
                || path.parent().is_some_and(|parent| parent.ends_with(module));
            text.contains(&function) || is_module
        })
    }

    /// The names in backticks of a cell, each with the word that says where it is.
    fn named(cell: &str) -> Vec<(String, String)> {
        let mut home = String::new();
        let mut names = Vec::new();
        for (index, part) in cell.split('`').enumerate() {
            if index % 2 == 1 {
                names.push((home.clone(), part.to_string()));
            } else {
                let mut words = part.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
                let last = words.rfind(|word| HOMES.iter().any(|(known, _)| known == word));
                home = last.map_or(home, str::to_string);
            }
        }
        names
    }

    #[test]
    fn every_test_that_is_named_exists() {
        let mut homes = BTreeMap::new();
        for (word, folder) in HOMES {
            let mut found = Vec::new();
            sources(&root().join(folder), &mut found);
            homes.insert(*word, found);
        }
        let mut checked = 0;
        for document in ["docs/SPECIFICATION.md", "docs/SECURITY.md"] {
            let text = fs::read_to_string(root().join(document)).unwrap();
            let before = checked;
            let mut names_tests = false;
            for line in text.lines() {
                let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
                let &[what, _, cell] = cells.as_slice() else { continue };
                if cell == "test" {
                    names_tests = true;
                    continue;
                }
                if !names_tests || !line.starts_with("| ") {
                    continue;
                }
                let names = named(cell);
                let excused = cell.starts_with("bench") || cell == "by hand";
                assert!(!names.is_empty() || excused, "{what} names no test: {cell}");
                for (home, name) in names {
                    if name.starts_with("cargo xtask ") {
                        continue;
                    }
                    let sources =
                        homes.get(home.as_str()).unwrap_or_else(|| panic!("{what}: where is {name}?"));
                    assert!(exists(&name, sources), "{what}: there is no {home} {name}");
                    checked += 1;
                }
            }
            assert!(checked > before + 50, "{document}: only {checked} names were found");
        }
        assert!(checked > 150, "only {checked} names were found");
    }

    #[test]
    fn names_have_homes() {
        let found = named("registry `a`, `b::c`; conformance `d`; `e` and e2e `f` (`g`)");
        let found: Vec<String> = found.iter().map(|(home, name)| format!("{home} {name}")).collect();
        assert_eq!(
            found,
            ["registry a", "registry b::c", "conformance d", "conformance e", "e2e f", "e2e g"]
        );
    }
}
