//! Child processes as named, timed steps.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The cargo that runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command with the output passed through; the error names it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    println!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Runs a command and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Steps of one run and what each took.
#[derive(Debug)]
pub(crate) struct Steps {
    begun: Instant,
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), taken: Vec::new() }
    }

    /// Runs one step; the first failure ends the run, with the table of what was reached.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        body: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        println!("\n== {name}");
        let begun = Instant::now();
        let done = body();
        self.taken.push((name, begun.elapsed()));
        if done.is_err() {
            self.report();
        }
        done
    }

    /// Prints the table; an error when all steps together took longer than `limit`.
    pub(crate) fn finish(&self, limit: Duration) -> Result<(), String> {
        self.report();
        let taken = self.begun.elapsed();
        if taken > limit {
            return Err(format!(
                "took {:.0} s, more than the {:.0} s allowed",
                taken.as_secs_f64(),
                limit.as_secs_f64()
            ));
        }
        Ok(())
    }

    fn report(&self) {
        println!("\n{:<12} {:>8}", "step", "seconds");
        for (name, taken) in &self.taken {
            println!("{name:<12} {:>8.1}", taken.as_secs_f64());
        }
        println!("{:<12} {:>8.1}", "all", self.begun.elapsed().as_secs_f64());
    }
}

/// The number behind a key that occurs once in a report: enough of JSON for a program of ours.
pub(crate) fn number(json: &str, key: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start();
    let end =
        rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+' | 'e' | 'E')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_key() {
        let json = r#"{"time":{"prefill_ms": 12.5},"io":{"bytes":7},"memory":{"measured_peak_bytes":3,"peak_bytes":2}}"#;
        assert_eq!(number(json, "prefill_ms"), Some(12.5));
        assert_eq!(number(json, "bytes"), Some(7.0));
        assert_eq!(number(json, "peak_bytes"), Some(2.0));
        assert_eq!(number(json, "total_ms"), None);
        assert_eq!(number(r#"{"vocab": 50304, "width":2}"#, "vocab"), Some(50304.0));
        assert_eq!(number(r#"{"vocab_size":1}"#, "vocab"), None);
    }
}
