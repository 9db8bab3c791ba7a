//! The server's own log: an event is a line, whatever is in it.
//!
//! Much of what is logged was written by tenants: what their webhooks say, names, paths, messages. Nobody reads a line there that
//! the server did not write, and no terminal does what a tenant tells it to.

use std::io::{self, Write};

/// Writes each event as one line without characters that would do something.
pub(crate) struct OneLine<W> {
    out: W,
    /// The formatter uses escape sequences itself, and takes those of others out.
    colors: bool,
}

impl<W: Write> OneLine<W> {
    pub(crate) fn new(out: W, colors: bool) -> OneLine<W> {
        OneLine { out, colors }
    }
}

impl<W: Write> Write for OneLine<W> {
    /// The formatter writes an event at once, with the end of its line.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let text = String::from_utf8_lossy(text);
        if !text.contains(|char| acts(char, self.colors)) {
            self.out.write_all(event)?;
            return Ok(event.len());
        }
        let mut line = String::with_capacity(text.len() + 16);
        for char in text.chars() {
            match acts(char, self.colors) {
                true => line.extend(char.escape_default()),
                false => line.push(char),
            }
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether a character does more than to be seen: ends a line, controls a terminal, turns the direction of text around.
fn acts(char: char, colors: bool) -> bool {
    let turns = matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (char.is_control() && !(colors && char == '\u{1b}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let check = |event: &str, colors: bool, expected: &str| {
            let mut out = Vec::new();
            OneLine::new(&mut out, colors).write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check("all is well: \u{e9}\n", false, "all is well: \u{e9}\n");
        check("no\nWARN forged\r\n", false, "no\\nWARN forged\\r\n");
        check("a\u{1b}[2Jb\u{9b}c\u{7}\n", false, "a\\u{1b}[2Jb\\u{9b}c\\u{7}\n");
        check("\u{1b}[32mINFO\u{1b}[0m \u{202e}x\n", true, "\u{1b}[32mINFO\u{1b}[0m \\u{202e}x\n");
        check("no end", false, "no end");
    }
}
