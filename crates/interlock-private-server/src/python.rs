//! A server that is a script of Python: what a client is tried against that nobody here wrote the TLS of.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::first_line;

/// A running script. Dropped, it ends.
#[derive(Debug)]
pub struct PythonServer {
    process: Child,
    /// Where it listens.
    pub port: u16,
}

impl PythonServer {
    /// Starts a script whose first argument is a folder, and which prints its port when it listens.
    pub fn start(script: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(folder).args(arguments);
        let mut process = python.stdout(Stdio::piped()).spawn().unwrap();
        let line = first_line("the port of a Python server", process.stdout.take().unwrap());
        Self { process, port: line.trim().parse().unwrap() }
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
