//! The kept inputs of every fuzz target, replayed: seeds, and whatever fuzzing once found.

use estream_tests::fuzz::BODIES;
use estream_tests::fuzz::seeds::seeds;
use estream_tests::random::Random;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No small input may take longer.
const TIME: Duration = Duration::from_secs(1);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

#[test]
fn every_kept_input_is_survived() {
    for (name, body) in BODIES {
        let mut paths: Vec<_> = std::fs::read_dir(corpus().join(name))
            .unwrap_or_else(|error| panic!("the corpus of {name}: {error}"))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name} has no corpus");
        for path in paths {
            let bytes = std::fs::read(&path).expect("a kept input");
            println!("{}", path.display());
            let begun = Instant::now();
            body(&bytes);
            // Cut short, the input is another one that must be survived.
            body(&bytes[..bytes.len() / 2]);
            assert!(begun.elapsed() < TIME, "{} took {:?}", path.display(), begun.elapsed());
        }
    }
}

/// `ESTREAM_SEEDS=1` writes them where the fuzzer finds them.
#[test]
fn every_sound_input_is_survived_whole_cut_and_bent() {
    let mut random = Random::new(9);
    for (target, name, bytes) in seeds(env!("CARGO_TARGET_TMPDIR")) {
        if std::env::var_os("ESTREAM_SEEDS").is_some_and(|value| value == "1") {
            let folder = corpus().join(target);
            std::fs::create_dir_all(&folder).expect("the corpus");
            std::fs::write(folder.join(format!("seed-{name}")), &bytes).expect("a seed");
        }
        let (_, body) = BODIES.into_iter().find(|(known, _)| *known == target).expect("a target");
        println!("{target}/{name}: {} bytes", bytes.len());
        body(&bytes);
        for _ in 0..20 {
            body(&bytes[..random.below(bytes.len() as u64) as usize]);
            let mut bent = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bent.len().min(6000) as u64) as usize;
                bent[at] = random.below(256) as u8;
            }
            body(&bent);
        }
    }
}

#[test]
fn nothing_and_noise_are_survived() {
    let mut random = Random::new(5);
    for (_, body) in BODIES {
        body(&[]);
        for length in [1, 8, 64, 5000] {
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            body(&bytes);
        }
    }
}
