//! Running a child process to its end, with the most memory it ever held and the time it took.
//!
//! std's `wait` throws the kernel's account away, so the wait is made here. The account begins before `exec`: it is never
//! below what this process held when the child was made, so tests that bound it keep themselves small.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A child that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code, or 128 + the signal that ended it.
    pub code: i32,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
    /// From its making to its end.
    pub time: Duration,
    /// The most resident memory in bytes.
    pub peak_bytes: u64,
}

/// Runs `command` to its end. Output goes to files, so that a child is never held up by a full pipe.
///
/// # Errors
/// When the child cannot be made or waited for.
pub fn run(command: &mut Command) -> io::Result<Ended> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let begun = Instant::now();
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: all zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for writes; the child is ours and nobody else waits for it.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = begun.elapsed();
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    Ok(Ended { code, stdout: text(stdout)?, stderr: text(stderr)?, time, peak_bytes })
}

fn text(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_signal_and_output_come_back() {
        let shell = |script: &str| run(Command::new("sh").args(["-c", script])).unwrap();
        let ended = shell("echo out; echo err >&2; exit 3");
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (3, "out\n", "err\n"));
        assert!(ended.peak_bytes > 0 && ended.peak_bytes < 1 << 30);
        assert_eq!(shell("kill -9 $$").code, 137);
        assert!(shell("sleep 0.1").time >= Duration::from_millis(100));
    }
}
