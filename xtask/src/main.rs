//! The one entry point for people who work on Polder.

mod r#gen;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gen"] => r#gen::run(),
        ["gen", "--check"] => r#gen::check(),
        _ => anyhow::bail!("usage: cargo xtask gen [--check]"),
    }
}
