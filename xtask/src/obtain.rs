//! Ways to come by an upstream program: unpack Debian's package, or build published Go modules. Both pinned by the caller.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::step::{has, quiet, show};

const KUBERNETES: &str = "k8s.io/kubernetes";

/// A program that is made once into a folder of its own, and again when what it is made from changes.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Its folder in `target/tools`, and the file in it.
    pub(crate) folder: &'static str,
    pub(crate) file: &'static str,
    /// What the folder's contents depend on: a different one means make it again.
    pub(crate) version: String,
    pub(crate) make: fn(&Path) -> anyhow::Result<()>,
}

impl Program {
    /// Where the program is, after making it if need be.
    pub(crate) fn ensure(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let folder = directory.join(self.folder);
        let (file, stamp) = (folder.join(self.file), folder.join("made-from"));
        if file.exists() && fs::read_to_string(&stamp).is_ok_and(|text| text == self.version) {
            return Ok(file);
        }
        eprintln!("fetching {} {}", self.name, self.version);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        (self.make)(&folder)?;
        ensure!(file.exists(), "{} did not come out of it", file.display());
        fs::write(&stamp, &self.version).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(file)
    }
}

/// Takes one program out of a Debian package without installing it, so that no root is needed.
pub(crate) fn debian(folder: &Path, package: &str, program: &str) -> anyhow::Result<PathBuf> {
    ensure!(has("apt-get") && has("dpkg-deb"), "this machine has no apt-get and dpkg-deb");
    let download = || quiet(Command::new("apt-get").args(["download", package]).current_dir(folder));
    if download().is_err() {
        // A fresh container has no package lists; only root can fetch them.
        quiet(Command::new("apt-get").arg("update"))
            .with_context(|| format!("apt-get knows no {package}"))?;
        download()?;
    }
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let archive = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let archive = archive.context("apt-get download left no package")?;
    let unpacked = folder.join("unpacked");
    quiet(Command::new("dpkg-deb").arg("-x").args([&archive, &unpacked]))?;
    let inside = Path::new("usr/bin").join(program);
    let file = folder.join(program);
    fs::rename(unpacked.join(&inside), &file)
        .with_context(|| format!("the package has no {}", inside.display()))?;
    fs::remove_dir_all(&unpacked)?;
    fs::remove_file(&archive)?;
    Ok(file)
}

/// Where Debian's package has PostgreSQL's programs.
const POSTGRES: &str = "usr/lib/postgresql";

/// The newest PostgreSQL that is below a folder as Debian lays it out.
pub(crate) fn postgres_in(root: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(root.join(POSTGRES)).ok()?.filter_map(Result::ok);
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found = versions.filter_map(|entry| Some((version(&entry.path())?, entry.path().join("bin"))));
    found.filter(|(_, programs)| programs.join("initdb").exists()).max().map(|(_, programs)| programs)
}

/// PostgreSQL's server and what makes its files: those that are installed, or Debian's packages unpacked, with the libraries that
/// this machine lacks. The server refuses to run as root, so others must be able to run it.
pub(crate) fn postgres(folder: &Path) -> anyhow::Result<()> {
    let (programs, libraries) = match postgres_in(Path::new("/")) {
        Some(programs) => (programs, String::new()),
        None => unpacked_postgres(folder)?,
    };
    for program in ["initdb", "postgres"] {
        let file = folder.join(program);
        let run = programs.join(program);
        let text = format!("#!/bin/sh\n{libraries}exec '{}' \"$@\"\n", run.display());
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        quiet(Command::new(&file).arg("--version"))?;
    }
    Ok(())
}

fn unpacked_postgres(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    ensure!(has("apt-get") && has("dpkg-deb"), "this machine has no apt-get and dpkg-deb");
    let (packages, unpacked) = (folder.join("packages"), folder.join("unpacked"));
    fs::create_dir_all(packages.join("partial"))?;
    // What it depends on comes too, unless it is installed; nothing is installed by this.
    let download = || {
        let archives = format!("Dir::Cache::archives={}", packages.display());
        let options = ["install", "--download-only", "--yes", "--no-install-recommends"];
        let mut command = Command::new("apt-get");
        quiet(command.args(options).args(["-o", &archives, "-o", "Debug::NoLocking=1", "postgresql"]))
    };
    if download().is_err() {
        quiet(Command::new("apt-get").arg("update")).context("apt-get knows no postgresql")?;
        download()?;
    }
    for entry in fs::read_dir(&packages)?.filter_map(Result::ok) {
        if entry.path().extension().is_some_and(|end| end == "deb") {
            quiet(Command::new("dpkg-deb").arg("-x").args([&entry.path(), &unpacked]))?;
        }
    }
    fs::remove_dir_all(&packages)?;
    let programs = postgres_in(&unpacked).context("the packages have no PostgreSQL")?;
    let folders = [unpacked.join("usr/lib"), unpacked.join("lib")];
    let folders = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let folders = folders.map(|entry| entry.path().display().to_string());
    let folders: Vec<String> = folders.filter(|path| path.ends_with("-linux-gnu")).collect();
    Ok((programs, format!("LD_LIBRARY_PATH='{}'\nexport LD_LIBRARY_PATH\n", folders.join(":"))))
}

/// A program that upstream publishes as Go source.
pub(crate) struct GoProgram<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: GoSource<'a>,
    /// The package it is made from, and its version; without one, the version that `module` leads to.
    pub(crate) package: &'a str,
    pub(crate) version: Option<&'a str>,
    /// `require` and `replace` lines.
    pub(crate) module: &'a str,
    /// The Kubernetes release it is to say it is.
    pub(crate) release: &'a str,
}

/// What a package is to a program made from it.
#[derive(Clone, Copy)]
pub(crate) enum GoSource<'a> {
    /// It has the command; this `main` of a few lines calls it.
    Main(&'a str),
    /// It is the program.
    Command,
    /// Its tests are the program.
    Tests,
}

/// Builds it into the folder.
pub(crate) fn go(folder: &Path, program: &GoProgram<'_>) -> anyhow::Result<()> {
    ensure!(has("go"), "this machine has no Go to build it with");
    let GoProgram { name, package, release, .. } = program;
    let (major, rest) = release.split_once('.').context("a version is 1.x.y")?;
    let (minor, _) = rest.split_once('.').context("a version is 1.x.y")?;
    let source = folder.join("source");
    fs::create_dir_all(&source)?;
    fs::write(source.join("go.mod"), format!("module {name}\n\ngo 1.25.0\n\n{}\n", program.module))?;
    let (verb, with_tests, what): (&[&str], _, _) = match program.source {
        GoSource::Main(text) => {
            fs::write(source.join("main.go"), text)?;
            (&["build"], None, ".")
        }
        GoSource::Command => (&["build"], None, *package),
        GoSource::Tests => (&["test", "-c"], Some("-t"), *package),
    };
    let version = "-X k8s.io/component-base/version.git";
    let flags = format!("-s -w {version}Version=v{release} {version}Major={major} {version}Minor={minor}");
    // Toolchains and flags of whoever runs this must not have a say.
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&source).env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
        show(&mut command)
    };
    if let Some(version) = program.version {
        let package = format!("{package}@{version}");
        go(&["get"].into_iter().chain(with_tests).chain([package.as_str()]).collect::<Vec<_>>())?;
    }
    eprintln!("building {name} {release}, some minutes");
    let file = format!("../{name}");
    let options = ["-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o", &file, what];
    go(&verb.iter().copied().chain(options).collect::<Vec<_>>())
}

/// The lines that make a module depend on Kubernetes itself at a release. Its own libraries are replaced by folders
/// of its repository there; their published versions stand in for them here.
pub(crate) fn kubernetes_module(folder: &Path, release: &str, libraries: &str) -> anyhow::Result<String> {
    ensure!(has("go"), "this machine has no Go to fetch it with");
    let downloaded = quiet(
        Command::new("go")
            .args(["mod", "download", "-json", &format!("{KUBERNETES}@v{release}")])
            .current_dir(folder)
            .env("GOWORK", "off"),
    )?;
    let downloaded: serde_json::Value = serde_json::from_str(&downloaded)?;
    let file = downloaded["GoMod"].as_str().context("go did not say where the module is")?;
    let upstream = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let replaced =
        upstream.lines().filter_map(|line| line.split_once("=> ./staging/").map(|(name, _)| name.trim()));
    let replaced: String = replaced.map(|name| format!("replace {name} => {name} {libraries}\n")).collect();
    Ok(format!("require {KUBERNETES} v{release}\n\n{replaced}"))
}
