//! The log: a line of JSON an event, in a file that only its owner reads. A full file is set aside under the time it ended at, and
//! those are kept by number and age.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// What the log may take. Zero means no bound.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub path: PathBuf,
    pub bytes_max: u64,
    pub age_seconds_max: i64,
    pub files_max: usize,
}

#[derive(Debug)]
pub(super) struct Log {
    options: LogOptions,
    file: File,
    len: u64,
}

impl Log {
    pub(super) fn open(options: LogOptions) -> io::Result<Log> {
        let file = open(&options.path)?;
        let len = file.metadata()?.len();
        Ok(Log { options, file, len })
    }

    /// Appends whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let lines = &*quiet(lines);
        let max = self.options.bytes_max;
        if max > 0 && self.len > 0 && self.len + lines.len() as u64 > max {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Half a line would spoil the next one.
            self.file.set_len(self.len).ok();
            return Err(error);
        }
        self.len += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let (stem, end) = parts(&self.options.path);
        let time = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.6f").to_string();
        let aside = self.options.path.with_file_name(format!("{stem}-{time}{end}"));
        match std::fs::rename(&self.options.path, aside) {
            // Somebody else has moved it, or it could not be opened again the last time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
        self.file = open(&self.options.path)?;
        self.len = 0;
        if let Err(error) = self.prune() {
            tracing::warn!(%error, "cannot delete old files of the audit log");
        }
        Ok(())
    }

    /// Deletes what was set aside too long ago, or is too much.
    fn prune(&self) -> io::Result<()> {
        let (stem, end) = parts(&self.options.path);
        let directory = match self.options.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut aside = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&end));
            if time.is_some_and(|time| {
                time.len() == 26 && time.starts_with(|first: char| first.is_ascii_digit())
            }) {
                aside.push((name, entry.path(), entry.metadata()?.modified().ok()));
            }
        }
        // Names sort as times do.
        aside.sort();
        let surplus = aside.len().saturating_sub(match self.options.files_max {
            0 => usize::MAX,
            max => max,
        });
        let horizon = Timestamp::now().as_second() - self.options.age_seconds_max;
        for (index, (_, path, modified)) in aside.iter().enumerate() {
            let seconds = modified.and_then(|time| Timestamp::try_from(time).ok()).map(Timestamp::as_second);
            let old = self.options.age_seconds_max > 0 && seconds.is_some_and(|seconds| seconds < horizon);
            if index < surplus || old {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Lines of JSON without characters that do something where they are shown: to a terminal, or to a program that ends a line at more
/// than its end. They are only ever inside of texts, where an escape means the same.
fn quiet(lines: &[u8]) -> Cow<'_, [u8]> {
    let acts =
        |char: char| matches!(char, '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let Ok(text) = std::str::from_utf8(lines) else { return lines.into() };
    if !text.contains(acts) {
        return lines.into();
    }
    let escaped = text.chars().fold(String::with_capacity(text.len() + 64), |mut escaped, char| {
        match acts(char) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(char))),
            false => escaped.push(char),
        }
        escaped
    });
    escaped.into_bytes().into()
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// A file name without its end, and the end with its dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let end = path.extension().map_or(String::new(), |end| format!(".{}", end.to_string_lossy()));
    (text(path.file_stem()), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_escaped() {
        assert!(matches!(quiet(b"{\"a\":\"plain\"}\n"), Cow::Borrowed(_)));
        let lines = "{\"a\":\"\u{9b}31m \u{2028}\u{e9}\u{202e}\u{7f}\"}\n";
        let expected = "{\"a\":\"\\u009b31m \\u2028\u{e9}\\u202e\\u007f\"}\n";
        assert_eq!(String::from_utf8_lossy(&quiet(lines.as_bytes())), expected);
    }

    #[test]
    fn full_files_are_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(directory.path().join("audit-notes.log"), "somebody else's").unwrap();
        let options = LogOptions { path: path.clone(), bytes_max: 20, age_seconds_max: 0, files_max: 2 };
        let mut log = Log::open(options.clone()).unwrap();
        for number in 0..9 {
            log.write(format!("line {number}..\n").as_bytes()).unwrap();
        }
        drop(log);
        let mut log = Log::open(options).unwrap();
        log.write(b"after\n").unwrap();
        let mut names: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 4, "{names:?}");
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("audit.log"), "line 8..\nafter\n");
        assert_eq!(read(&names[1]), "line 6..\nline 7..\n", "the newest are kept");
        assert_eq!(read(&names[0]), "line 4..\nline 5..\n");
    }
}
