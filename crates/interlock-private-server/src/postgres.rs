//! A private PostgreSQL.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    keeper::{Keeper, Plan, Signal, last_words},
    port::Port,
    run,
};

/// Who may run a server that refuses root: the first of them that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// A PostgreSQL of our own, with an empty database `interlock` and a user of that name.
#[derive(Debug)]
pub struct PrivatePostgres {
    plan: Plan,
    programs: PathBuf,
    keeper: Option<Keeper>,
    port: Port,
}

impl PrivatePostgres {
    /// One as the distribution sets it up.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with settings, such as `fsync=off`.
    pub fn start_with(settings: &[&str]) -> Self {
        let programs = programs();
        let user = unprivileged();
        let folder = own_folder(user.as_ref());
        let data = folder.join("data");
        initialise(&programs, user.as_ref(), &data);
        let port = Port::take();
        let mut line = vec![programs.join("postgres").display().to_string()];
        let own = [
            "-D".to_owned(),
            data.display().to_string(),
            format!("-cport={}", port.number),
            "-clisten_addresses=127.0.0.1".to_owned(),
            "-cunix_socket_directories=".to_owned(),
            "-cshared_buffers=64MB".to_owned(),
        ];
        line.extend(own.into_iter().chain(settings.iter().map(|one| format!("-c{one}"))));
        let plan = Plan { line, user: user.map(|user| user.name), signal: "QUIT", folder };
        let mut server = Self { plan, programs, keeper: None, port };
        let started = server.start_again();
        assert!(started, "postgres does not start:\n{}", last_words(&server.plan.folder));
        server
    }

    /// One that speaks TLS, by a certificate in this folder (see [`crate::certify`]), and lets in nobody without it; `clients`
    /// says whether it wants to see one of whoever connects: `yes` or `no`. The folder and the key are made readable for it.
    pub fn start_tls(certificates: &Path, clients: &str) -> Self {
        let file = |name: &str| certificates.join(name);
        let rule = if clients == "yes" { "trust clientcert=verify-ca" } else { "trust" };
        fs::write(file("hba"), format!("hostssl all all 127.0.0.1/32 {rule}\n")).unwrap();
        fs::set_permissions(certificates, fs::Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(file("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = unprivileged() {
            chown(file("key.pem"), Some(user.uid), Some(user.gid)).unwrap();
        }
        let named = |key: &str, name: &str| format!("{key}={}", file(name).display());
        let settings = [
            "ssl=on".to_owned(),
            named("ssl_cert_file", "cert.pem"),
            named("ssl_key_file", "key.pem"),
            named("ssl_ca_file", "ca.pem"),
            named("hba_file", "hba"),
        ];
        Self::start_with(&settings.each_ref().map(String::as_str))
    }

    /// How to reach it.
    pub fn dsn(&self) -> String {
        format!("postgres://interlock@127.0.0.1:{}/postgres?sslmode=disable", self.port.number)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Sends a signal to its first process.
    pub fn signal(&self, signal: Signal) {
        self.keeper.as_ref().unwrap().signal(signal);
    }

    /// Ends it at once, as a failing machine would; its data stays.
    pub fn kill(&mut self) {
        let keeper = self.keeper.take().unwrap();
        keeper.signal(Signal::QUIT);
        keeper.wait_and_keep();
    }

    /// Keeps its data as they are now, for [`Self::go_back`]; its clients lose their connections.
    pub fn set_aside(&mut self) {
        self.exchange("data", "aside");
    }

    /// Puts back what was set aside, as who restores a backup does: what was written since is gone.
    pub fn go_back(&mut self) {
        self.exchange("aside", "data");
    }

    fn exchange(&mut self, from: &str, to: &str) {
        self.kill();
        let (from, to) = (self.plan.folder.join(from), self.plan.folder.join(to));
        let _there_was_none = fs::remove_dir_all(&to);
        run(Command::new("cp").arg("-a").args([&from, &to]));
        assert!(self.start_again(), "{}", last_words(&self.plan.folder));
    }

    /// Starts it on the data that it left; false if it ended at once.
    pub fn start_again(&mut self) -> bool {
        let port = self.port.number.to_string();
        let mut ask = Command::new(self.programs.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p", &port]);
        let answers = || ask.status().is_ok_and(|status| status.success());
        self.keeper = Keeper::start_and_wait(&self.plan, answers);
        self.keeper.is_some()
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if self.keeper.is_none() {
            let _gone = fs::remove_dir_all(&self.plan.folder);
        }
    }
}

fn initialise(programs: &Path, user: Option<&User>, data: &Path) {
    let mut command = match user {
        Some(user) => as_user(user, &programs.join("initdb")),
        None => Command::new(programs.join("initdb")),
    };
    command.args(["--no-sync", "--auth=trust", "--username=interlock", "--encoding=UTF8"]);
    run(command.args(["--locale=C", "-D"]).arg(data));
}

/// Debian keeps the programs of each version in a folder of their own, not on the path.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_string_lossy().parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| folder.join("postgres").exists())
        .collect();
    found.sort();
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).find(|folder| folder.join("postgres").exists())
    });
    let Some(folder) = found.pop().map(|(_, folder)| folder).or(on_path) else {
        panic!("PostgreSQL is not installed; `cargo xtask test` installs it");
    };
    folder
}

/// A user of the system.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    uid: u32,
    gid: u32,
}

/// As whom to run what refuses root; nobody else if we are not root.
pub(crate) fn unprivileged() -> Option<User> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &&str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(*name))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        Some(User { name: (*name).to_owned(), uid, gid: fields.next()?.parse().ok()? })
    };
    Some(USERS.iter().find_map(find).unwrap())
}

fn as_user(user: &User, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let (uid, gid) = (format!("--reuid={}", user.name), format!("--regid={}", user.gid));
    command.args([&uid, &gid, "--clear-groups", "--"]).arg(program);
    command
}

/// A temporary folder that belongs to a user.
pub(crate) fn own_folder(user: Option<&User>) -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    if let Some(user) = user {
        chown(&folder, Some(user.uid), Some(user.gid)).unwrap();
    }
    folder
}
