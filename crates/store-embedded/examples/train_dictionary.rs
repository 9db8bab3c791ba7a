//! Trains the dictionary that values are compressed with, from made-up objects, and writes it to the path given.
//!
//! `cargo run --release -p polder-store-embedded --example train_dictionary -- <file>`. A dictionary that has been
//! released never changes: a new one is a new file with a new format byte in `src/value.rs`.

mod samples;

const DICTIONARY_LEN_MAX: usize = 32 << 10;
const SAMPLES_LEN: usize = 4_000;

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("say where to write the dictionary"))?;
    std::fs::write(path, train_dictionary()?)?;
    Ok(())
}

fn train_dictionary() -> anyhow::Result<Vec<u8>> {
    let mut random = samples::Random::new(20_260_101);
    let samples: Vec<Vec<u8>> =
        (0..SAMPLES_LEN).map(|_| samples::record(&mut random).as_bytes().to_vec()).collect();
    Ok(zstd::dict::from_samples(&samples, DICTIONARY_LEN_MAX)?)
}
