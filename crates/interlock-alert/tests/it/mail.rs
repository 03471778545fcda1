//! E-mail, against a little SMTP server that writes down the conversation.

use std::sync::{Arc, Mutex};

use interlock_config::server::{Email, MailTls};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::*;

pub(crate) fn declared(smtp: &str) -> Email {
    Email {
        smtp: smtp.to_owned(),
        from: "Interlock <interlock@example.com>".into(),
        to: vec!["ann@example.com".into(), "Ben <ben@example.com>".into()],
        username: Some("interlock".into()),
        password: Some(Secret::new("hush")),
        tls: MailTls::None,
    }
}

/// How the server answers a command that begins so; everything else is fine.
type Answers = &'static [(&'static str, &'static str)];

/// A server, and what was said to it.
struct Postman {
    address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Postman {
    async fn new(capabilities: &'static [&'static str], answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let said = Arc::clone(&heard);
        tokio::spawn(async move {
            // Bounded: nothing awaits this task; it ends with the test's runtime.
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, capabilities, answers, Arc::clone(&said)));
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn was_told(&self, beginning: &str) -> bool {
        self.heard().iter().any(|line| line.starts_with(beginning))
    }
}

async fn converse(
    stream: TcpStream,
    capabilities: &'static [&'static str],
    answers: Answers,
    heard: Arc<Mutex<Vec<String>>>,
) {
    let mut stream = BufReader::new(stream);
    let mut is_data = false;
    let mut say = "220 mail.example.com ESMTP\r\n".to_owned();
    loop {
        if stream.get_mut().write_all(say.as_bytes()).await.is_err() {
            return;
        }
        say = loop {
            let mut bytes = Vec::new();
            // Bounded: nothing awaits this task; it ends with the test's runtime.
            if stream.read_until(b'\n', &mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            heard.lock().unwrap().push(line.clone());
            if is_data && line != "." {
                continue;
            }
            is_data = false;
            let found = answers.iter().find(|(command, _)| line.starts_with(command));
            if let Some((_, answer)) = found {
                is_data = answer.starts_with('3') && line == "DATA";
                if *answer == "hang" {
                    std::future::pending::<()>().await;
                }
                if answer.is_empty() {
                    return;
                }
                break format!("{answer}\r\n");
            }
            match line.split(' ').next().unwrap_or_default() {
                "EHLO" => {
                    let lines = capabilities.iter().map(|one| format!("250-{one}\r\n"));
                    break lines.chain(["250 8BITMIME\r\n".to_owned()]).collect();
                }
                "DATA" => {
                    is_data = true;
                    break "354 go on\r\n".to_owned();
                }
                "AUTH" => break "235 welcome\r\n".to_owned(),
                _ => break "250 fine\r\n".to_owned(),
            }
        };
    }
}

async fn send(postman: &Postman, email: Email) -> Delivery {
    let email = Email { smtp: postman.address.clone(), ..email };
    let bench = Bench::new(vec![("mail", Channel::Email(email), AlertFilter::default())]);
    let mut alert = alert();
    alert.message = "Pipeline ø missed:\r\nBcc: everybody@example.com".into();
    alert.details.insert("state".into(), "open".into());
    alert.details.insert("incident".into(), "watchdog:a".into());
    let notice = AlertMessage { alert, key: "k".into(), at: now() };
    bench.channels.deliver("mail", notice).await
}

#[tokio::test]
async fn a_mail_says_who_what_and_when_and_a_repetition_has_the_same_id() {
    let postman = Postman::new(&["AUTH PLAIN LOGIN"], &[]).await;
    for _ in 0..2 {
        assert_eq!(send(&postman, declared("")).await, Delivery::Delivered);
    }
    let heard = postman.heard();
    for line in [
        "MAIL FROM:<interlock@example.com>",
        "RCPT TO:<ann@example.com>",
        "RCPT TO:<ben@example.com>",
        // What `printf '\0interlock\0hush' | base64` says.
        "AUTH PLAIN AGludGVybG9jawBodXNo",
        "Date: Wed, 25 Feb 2026 09:25:03 +0000",
        "To: ann@example.com, Ben <ben@example.com>",
        "interlock incidents ack watchdog:a --note \"...\"",
    ] {
        assert!(heard.iter().any(|said| said.starts_with(line)), "no {line} in {heard:#?}");
    }
    assert!(!heard.iter().any(|line| line.starts_with("Bcc")), "a header was smuggled in");
    let ids: Vec<&String> = heard.iter().filter(|line| line.starts_with("Message-ID:")).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    let subject = heard.iter().find(|line| line.starts_with("Subject: ")).unwrap();
    assert!(
        subject.starts_with("Subject: [error] earthquake-silver: schedule_missed:"),
        "{subject}"
    );
}

#[tokio::test]
async fn a_server_without_a_password_is_not_told_one() {
    let postman = Postman::new(&[], &[]).await;
    let email = Email { username: None, password: None, ..declared("") };
    assert_eq!(send(&postman, email).await, Delivery::Delivered);
    assert!(!postman.was_told("AUTH"));
}

#[tokio::test]
async fn what_the_server_says_decides_whether_it_is_tried_again() {
    for (answers, is_final) in [
        (&[("RCPT", "550 no such user")] as Answers, true),
        (&[("AUTH", "535 who are you")], true),
        (&[("RCPT", "450 greylisted")], false),
        (&[("MAIL", "421 busy")], false),
        // It takes the whole mail and drops the connection: nobody knows.
        (&[(".", "")], false),
        (&[("MAIL", "hang")], false),
    ] {
        let postman = Postman::new(&["AUTH PLAIN"], answers).await;
        let delivery = send(&postman, declared("")).await;
        let is_refused = matches!(delivery, Delivery::Refused { .. });
        assert_eq!(is_refused, is_final, "{answers:?}: {delivery:?}");
        assert!(!reason(&delivery).is_empty());
    }
}

#[tokio::test]
async fn without_the_encryption_that_was_asked_for_nothing_is_said() {
    // One that does not offer it, and one whose certificate nobody knows.
    for capabilities in [&["AUTH PLAIN"] as &'static [&'static str], &["STARTTLS", "AUTH PLAIN"]] {
        let postman = Postman::new(capabilities, &[("STARTTLS", "220 go on")]).await;
        let email = Email { tls: MailTls::Starttls, ..declared("") };
        let delivery = send(&postman, email).await;
        assert!(!matches!(delivery, Delivery::Delivered), "{delivery:?}");
        assert!(!postman.was_told("AUTH") && !postman.was_told("MAIL"), "{:?}", postman.heard());
        assert_eq!(postman.was_told("STARTTLS"), capabilities.len() == 2);
    }
    let postman = Postman::new(&["AUTH PLAIN"], &[]).await;
    let email = Email { tls: MailTls::Tls, ..declared("") };
    assert!(matches!(send(&postman, email).await, Delivery::Failed { .. }));
    assert!(!postman.was_told("EHLO"));
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_anybody_is_called() {
    let postman = Postman::new(&[], &[]).await;
    let email = Email { to: vec!["nobody".into()], ..declared("") };
    let delivery = send(&postman, email).await;
    assert!(matches!(delivery, Delivery::Refused { .. }), "{delivery:?}");
    assert!(reason(&delivery).contains("`nobody` is no mail address"));
    assert_eq!(postman.heard(), Vec::<String>::new());
}
