//! A private PgBouncer with transaction pooling: what a server connection remembers is somebody else's a
//! moment later.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
};

use crate::{
    PrivatePostgres, free_port,
    keeper::{Keeper, Plan, last_words},
    postgres::{own_folder, unprivileged},
    wait_until,
};

/// A pool in front of a [`PrivatePostgres`].
#[derive(Debug)]
pub struct PrivateBouncer {
    port: u16,
    _keeper: Keeper,
}

impl PrivateBouncer {
    /// A pool of so many connections to the server, whoever asks.
    pub fn start(server: &PrivatePostgres, connections: usize) -> Self {
        let user = unprivileged();
        loop {
            let folder = own_folder(user.as_ref());
            let port = free_port();
            let settings = folder.join("pgbouncer.ini");
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
                 default_pool_size = {connections}\nmax_client_conn = 500\n\
                 ignore_startup_parameters = extra_float_digits\n",
                server.port()
            );
            // `any` logs everybody in as one user, which the database line must name.
            fs::write(&settings, text.replace("127.0.0.1 port", "127.0.0.1 user=interlock port"))
                .unwrap();
            let line = vec!["pgbouncer".to_owned(), settings.display().to_string()];
            let user = user.as_ref().map(|user| user.name.clone());
            let plan = Plan { line, user, signal: "KILL", folder };
            let keeper = Keeper::start(&plan);
            let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            if wait_until(answers, || keeper.has_ended()) {
                return Self { port, _keeper: keeper };
            }
            let said = last_words(&plan.folder);
            assert!(
                said.contains("Address already in use"),
                "pgbouncer does not start (`cargo xtask test` installs it):\n{said}"
            );
        }
    }

    /// How to reach the database through it.
    pub fn dsn(&self) -> String {
        format!("postgres://interlock@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}
