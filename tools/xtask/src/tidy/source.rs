//! Rules about single files.

use super::text::{Kind, before_tests, keep, lines_with};
use super::{Breach, File};

/// No file is longer.
const MAX_LINES: usize = 700;
/// Names that say nothing about what a module holds.
const EMPTY_NAMES: [&str; 4] = ["utils", "common", "misc", "helpers"];
/// The firmware, the host and the contract have recipes and no models.
const MODELS: [&str; 6] = ["olmoe", "qwen", "mixtral", "lfm", "deepseek", "llama"];
/// Float functions whose results differ between machines; `dsp` has one implementation of each, its own or libm's.
/// (`mul_add` is exact, but the name of a lane operation too: only the calls by type are std's for certain.)
const FLOAT_METHODS: [&str; 15] = [
    "exp", "exp2", "exp_m1", "ln", "ln_1p", "log2", "log10", "powf", "powi", "sin", "cos", "tan", "sin_cos",
    "tanh", "cbrt",
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Breach> {
    let mut breaches = machine_paths(file);
    if !file.is_rust() {
        return breaches;
    }
    let lines = file.text.lines().count();
    if lines > MAX_LINES {
        breaches.push(file.breach(0, format!("{lines} lines, more than {MAX_LINES}")));
    }
    if !file.text.starts_with("//! ") {
        breaches.push(file.breach(1, "a file begins with what it is for (//!)"));
    }
    let stem = file.path.rsplit('/').find(|part| *part != "mod.rs").unwrap_or_default();
    if EMPTY_NAMES.contains(&stem.trim_end_matches(".rs")) {
        breaches.push(file.breach(0, "the name says nothing about the contents"));
    }
    breaches.extend(unfinished(file));
    let code = keep(before_tests(&file.text), &[Kind::Code]);
    breaches.extend(environment(file, &code));
    breaches.extend(floats(file, &code));
    breaches.extend(model_names(file));
    breaches
}

/// Absolute paths of somebody's machine. The needles are joined here so that this file is not its own breach.
fn machine_paths(file: &File) -> Vec<Breach> {
    let needles = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let lines = file.text.lines().enumerate();
    let found = lines.filter(|(_, line)| needles.iter().any(|needle| line.contains(needle)));
    found.map(|(index, _)| file.breach(index + 1, "a path of one machine")).collect()
}

/// Macros and words that mark unfinished work, and tests that do not run.
fn unfinished(file: &File) -> Vec<Breach> {
    let code = keep(&file.text, &[Kind::Code]);
    let mut breaches = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for needle in ["todo!", "unimplemented!", "dbg!", "#[ignore"] {
            if line.contains(needle) {
                breaches.push(file.breach(index + 1, format!("{needle} does not stay")));
            }
        }
    }
    for word in ["TODO", "FIXME", "XXX"] {
        let comments = keep(&file.text, &[Kind::Comment]);
        for line in lines_with(&comments, word) {
            let text = comments.lines().nth(line - 1).unwrap_or_default();
            let numbered = text.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if !numbered {
                breaches.push(file.breach(line, format!("{word} without the number of an issue")));
            }
        }
    }
    breaches
}

/// Law 11: only the command line (and what drives tests) reads the environment.
fn environment(file: &File, code: &str) -> Vec<Breach> {
    let allowed = ["tools/estream/", "tools/xtask/", "tests/"];
    if allowed.iter().any(|folder| file.path.starts_with(folder)) || file.path.contains("/tests/") {
        return Vec::new();
    }
    let reads = ["env::var", "env::vars", "var_os(", "getenv"];
    let lines = code.lines().enumerate().filter(|(_, line)| reads.iter().any(|read| line.contains(read)));
    lines.map(|(index, _)| file.breach(index + 1, "only the command line reads the environment")).collect()
}

/// Law 1f: float functions of std, whose last bits no one promises.
fn floats(file: &File, code: &str) -> Vec<Breach> {
    if !file.path.starts_with("dsp/src/") {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for method in FLOAT_METHODS {
        let called = [format!(".{method}("), format!("f32::{method}("), format!("f64::{method}(")];
        for (index, line) in code.lines().enumerate() {
            if called.iter().any(|call| line.contains(call)) {
                breaches.push(file.breach(index + 1, format!("`{method}` of std differs between machines")));
            }
        }
    }
    breaches
}

/// No code path of the three is named after a model; comments may compare with one.
fn model_names(file: &File) -> Vec<Breach> {
    let watched = ["dsp/src/", "idl/src/", "host/src/"];
    if !watched.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let spoken = keep(before_tests(&file.text), &[Kind::Code, Kind::Literal]).to_lowercase();
    let lines = spoken.lines().enumerate();
    let named =
        lines.filter_map(|(index, line)| Some((index, MODELS.iter().find(|model| line.contains(**model))?)));
    named.map(|(index, model)| file.breach(index + 1, format!("names a model ({model})"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: format!("//! Doc.\n{text}\n") };
        check(&file).into_iter().map(|breach| format!("{}: {}", breach.line, breach.message)).collect()
    }

    #[test]
    fn each_rule_finds_its_breach_at_its_line() {
        let found = |path: &str, text: &str, part: &str| {
            let messages = messages(path, text);
            assert!(messages.len() == 1 && messages[0].contains(part), "{text}: {messages:?}");
        };
        found("dsp/src/a.rs", "fn f() { todo!() }", "2: todo!");
        found("dsp/src/a.rs", "// TODO later", "2: TODO");
        found("dsp/src/a.rs", "#[ignore]", "ignore");
        found("dsp/src/a.rs", "\nlet y = x.exp();", "3: `exp`");
        found("dsp/src/a.rs", "let y = f32::powf(x, 2.0);", "`powf`");
        found("idl/src/a.rs", "fn run_olmoe() {}", "olmoe");
        found("host/src/a.rs", "const S: &str = \"Qwen3\";", "qwen");
        found("host/src/a.rs", "let x = std::env::var(\"X\");", "environment");
        found("host/src/utils.rs", "", "says nothing");
        found("host/src/utils/mod.rs", "", "says nothing");
        found("host/src/a.rs", concat!("// see /wo", "rk/x"), "one machine");
        found("host/src/a.rs", &"\n".repeat(MAX_LINES), "more than 700");
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        for (path, text) in [
            ("dsp/src/a.rs", "// TODO #12: later"),
            ("dsp/src/a.rs", "let y = libm::expf(x); let z = scale.exp2;"),
            ("dsp/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { x.exp(); } }"),
            ("dsp/src/a.rs", "// as in llama.cpp"),
            ("tools/pack/src/a.rs", "let y = x.ln(); // olmoe"),
            ("tools/estream/src/a.rs", "std::env::var(\"X\");"),
            ("host/tests/a.rs", "std::env::var(\"X\");"),
        ] {
            assert_eq!(messages(path, text), Vec::<String>::new(), "{text}");
        }
        let bare = File { path: "host/src/a.rs".into(), text: "fn main() {}\n".into() };
        assert_eq!(check(&bare).len(), 1);
    }
}
