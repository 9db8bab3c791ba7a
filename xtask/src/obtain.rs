//! Ways to come by an upstream program: unpack Debian's package, or build published Go modules. Both pinned by the caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::step::{has, quiet, show};

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

/// A `main` of a few lines around a command that upstream publishes as a module.
pub(crate) struct GoProgram<'a> {
    pub(crate) name: &'a str,
    pub(crate) main: &'a str,
    /// The package `main` gets its command from, and its version.
    pub(crate) package: &'a str,
    pub(crate) version: &'a str,
    /// `require` and `replace` lines.
    pub(crate) module: &'a str,
    /// The Kubernetes release it is to say it is.
    pub(crate) release: &'a str,
}

/// Builds it into the folder.
pub(crate) fn go(folder: &Path, program: &GoProgram<'_>) -> anyhow::Result<()> {
    ensure!(has("go"), "this machine has no Go to build it with");
    let GoProgram { name, release, .. } = program;
    let (major, rest) = release.split_once('.').context("a version is 1.x.y")?;
    let (minor, _) = rest.split_once('.').context("a version is 1.x.y")?;
    let source = folder.join("source");
    fs::create_dir_all(&source)?;
    fs::write(source.join("go.mod"), format!("module {name}\n\ngo 1.24\n\n{}\n", program.module))?;
    fs::write(source.join("main.go"), program.main)?;
    let version = "-X k8s.io/component-base/version.git";
    let flags = format!("-s -w {version}Version=v{release} {version}Major={major} {version}Minor={minor}");
    // Toolchains and flags of whoever runs this must not have a say.
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&source).env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
        show(&mut command)
    };
    go(&["get", &format!("{}@{}", program.package, program.version)])?;
    eprintln!("building {name} {release}, some minutes");
    go(&["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o", &format!("../{name}"), "."])
}
