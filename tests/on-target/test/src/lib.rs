//! As much of libtest as the compiler's test harness refers to, and a runner of about sixty lines.
//!
//! Each test runs on a thread of its own. A panic ends that thread, is printed, and the next test goes on; there is no
//! unwinding, so what the test had is leaked. Names and fields are the compiler's.
#![forbid(unsafe_code)]

pub use ShouldPanic::*;
pub use TestFn::*;
pub use TestName::*;
use std::process::Termination;
use std::{panic, thread};

/// Where a test was found.
#[derive(Clone, Copy, Debug)]
pub enum TestType {
    /// In `src`.
    UnitTest,
    /// In `tests`.
    IntegrationTest,
    /// Elsewhere.
    Unknown,
}

/// A test's name.
#[derive(Clone, Copy, Debug)]
pub enum TestName {
    /// Known when it was compiled.
    StaticTestName(&'static str),
}

/// Whether a test has to panic.
#[derive(Clone, Copy, Debug)]
pub enum ShouldPanic {
    /// It must not.
    No,
    /// It must.
    Yes,
    /// It must, with a message that contains this.
    YesWithMessage(&'static str),
}

/// A test's body.
#[derive(Clone, Copy, Debug)]
pub enum TestFn {
    /// A function.
    StaticTestFn(fn() -> Result<(), String>),
}

/// What is known about a test.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the compiler's fields")]
pub struct TestDesc {
    pub name: TestName,
    pub ignore: bool,
    pub ignore_message: Option<&'static str>,
    pub source_file: &'static str,
    pub start_line: usize,
    pub start_col: usize,
    pub end_line: usize,
    pub end_col: usize,
    pub should_panic: ShouldPanic,
    pub compile_fail: bool,
    pub no_run: bool,
    pub test_type: TestType,
}

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct TestDescAndFn {
    /// What is known about it.
    pub desc: TestDesc,
    /// Its body.
    pub testfn: TestFn,
}

/// The result of a test by what its function returned.
///
/// # Errors
/// When that stands for a failure.
pub fn assert_test_result<T: Termination>(result: T) -> Result<(), String> {
    match result.report() {
        0 => Ok(()),
        status => Err(format!("the test returned {status}")),
    }
}

/// Runs one test; whether it passed.
fn passes(test: &TestDescAndFn) -> bool {
    let StaticTestFn(body) = test.testfn;
    panic::take_message();
    let returned = thread::returns(move || body().expect("the test returned an error"));
    match (test.desc.should_panic, panic::take_message()) {
        (No, _) => returned,
        (Yes, _) => !returned,
        (YesWithMessage(part), message) => !returned && message.is_some_and(|message| message.contains(part)),
    }
}

/// Runs all tests, and ends the program with an error when one failed.
pub fn test_main_static_abort(tests: &[&TestDescAndFn]) {
    let mut failed = 0;
    println!("running {} tests on the target", tests.len());
    for test in tests {
        let StaticTestName(name) = test.desc.name;
        if test.desc.ignore {
            println!("test {name} ... ignored");
            continue;
        }
        let passed = passes(test);
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    println!(
        "test result: {}. {} passed; {failed} failed",
        if failed == 0 { "ok" } else { "FAILED" },
        tests.len() - failed
    );
    if failed > 0 {
        std::process::exit(panic::PANICKED);
    }
}
