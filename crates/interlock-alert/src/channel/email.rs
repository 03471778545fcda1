//! E-mail, by SMTP.
//!
//! The server's name is resolved here, by the rule for all outbound calls, and the address is dialled; the certificate is
//! checked against the name. What is about one incident is one thread: the id of the first message follows from its key.

use std::time::{Duration, SystemTime};

use interlock_config::server::{Email as Declared, MailTls};
use interlock_core::{
    id::fnv1a,
    incident::{Alert, IncidentState},
    message::{ACTION, RUNBOOK},
    pipeline::Secret,
};
use interlock_trigger::web::Web;
use jiff::SignedDuration;
use lettre::{
    AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor,
    message::{Mailbox, header},
    transport::smtp::{
        self,
        authentication::Credentials,
        client::{Tls, TlsParameters},
    },
};

use super::post::failed;
use interlock_ports::channel::{AlertMessage, Delivery};

/// The longest subject that a mail program shows with some sense.
const SUBJECT_MAX: usize = 150;

/// Where to, and as whom.
pub(crate) struct Email {
    pub(crate) declared: Declared,
    pub(crate) time_limit: SignedDuration,
}

impl Email {
    /// Sends an alert.
    pub(crate) async fn deliver(self, web: Web, notice: AlertMessage) -> Delivery {
        let limit = Duration::try_from(self.time_limit).unwrap_or(Duration::from_secs(10));
        let sent = tokio::time::timeout(limit, self.send(&web, &notice, limit)).await;
        match sent {
            Ok(Ok(())) => Delivery::Delivered,
            Ok(Err(delivery)) => delivery,
            Err(_elapsed) => {
                let reason = format!("{} did not take the mail in time", self.declared.smtp);
                Delivery::Failed { reason, retry_after: None }
            }
        }
    }

    async fn send(
        &self,
        web: &Web,
        notice: &AlertMessage,
        limit: Duration,
    ) -> Result<(), Delivery> {
        let message =
            message(&self.declared, notice).map_err(|reason| Delivery::Refused { reason })?;
        let (host, port) = self.declared.smtp.rsplit_once(':').unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().unwrap_or(25);
        let mut last =
            Delivery::Failed { reason: format!("{host} has no address"), retry_after: None };
        for address in web.addresses(host, port).await.map_err(failed)? {
            let server = self.server(&address.ip().to_string(), (host, port), limit)?;
            match server.send(message.clone()).await {
                Ok(_response) => return Ok(()),
                // Nobody there: the next address may do.
                Err(error)
                    if error.is_response() || error.is_permanent() || error.is_transient() =>
                {
                    return Err(refused(host, &error));
                }
                Err(error) => last = refused(host, &error),
            }
        }
        Err(last)
    }

    fn server(
        &self,
        address: &str,
        (host, port): (&str, u16),
        limit: Duration,
    ) -> Result<AsyncSmtpTransport<Tokio1Executor>, Delivery> {
        let parameters = || {
            TlsParameters::new(host.to_owned()).map_err(|error| Delivery::Refused {
                reason: format!("no encrypted connection to {host} can be made: {error}"),
            })
        };
        let tls = match self.declared.tls {
            MailTls::Tls => Tls::Wrapper(parameters()?),
            MailTls::Starttls => Tls::Required(parameters()?),
            MailTls::None => Tls::None,
        };
        let server = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address)
            .port(port)
            .tls(tls)
            .timeout(Some(limit));
        let Declared { username, password, .. } = &self.declared;
        Ok(match (username, password) {
            (Some(username), Some(password)) => {
                let password = Secret::expose(password).to_owned();
                server.credentials(Credentials::new(username.clone(), password)).build()
            }
            _ => server.build(),
        })
    }
}

/// What an answer of the server means, or that there was none.
fn refused(host: &str, error: &smtp::Error) -> Delivery {
    let mut reason = format!("{host}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        let said = deeper.to_string();
        if !reason.contains(&said) {
            reason = format!("{reason}: {said}");
        }
        cause = deeper.source();
    }
    let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(512).collect();
    if error.is_permanent() {
        Delivery::Refused { reason }
    } else {
        Delivery::Failed { reason, retry_after: None }
    }
}

fn message(declared: &Declared, notice: &AlertMessage) -> Result<Message, String> {
    let alert = &notice.alert;
    let mailbox = |text: &str| {
        text.parse::<Mailbox>().map_err(|error| format!("`{text}` is no mail address: {error}"))
    };
    let id = |of: &str| format!("<{:016x}@interlock>", fnv1a(of.as_bytes()));
    let date = SystemTime::from(notice.at);
    let mut mail = Message::builder()
        .from(mailbox(&declared.from)?)
        .subject(subject(alert))
        .date(date)
        // A repetition has the same id, and mail programs show it once.
        .message_id(Some(id(&notice.key)))
        .header(header::ContentType::TEXT_PLAIN);
    if let Some(incident) = alert.incident() {
        let thread = id(&format!("{}/{incident}", alert.pipeline_id));
        mail = mail.references(thread.clone()).in_reply_to(thread);
    }
    for to in &declared.to {
        mail = mail.to(mailbox(to)?);
    }
    mail.body(body(alert)).map_err(|error| format!("the mail cannot be written: {error}"))
}

fn subject(alert: &Alert) -> String {
    let Alert { alert_type, pipeline_id, .. } = alert;
    let subject = format!("[{}] {pipeline_id}: {alert_type}: {}", alert.word(), alert.line());
    subject.chars().take(SUBJECT_MAX).collect()
}

fn in_one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn body(alert: &Alert) -> String {
    let mut lines = vec![alert.line(), String::new()];
    lines.extend(alert.action().map(|action| format!("What to do: {}", in_one_line(action))));
    lines.extend(alert.runbook().map(|runbook| format!("Runbook: {}\n", in_one_line(runbook))));
    let is_said = |name: &String| name == ACTION || name == RUNBOOK;
    for (name, value) in alert.details.iter().filter(|(name, _)| !is_said(name)) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines.push(format!("{name}: {}", in_one_line(&value)));
    }
    let Alert { alert_type, pipeline_id, timestamp, .. } = alert;
    lines.push(format!("\n{pipeline_id} {alert_type} at {timestamp}"));
    if let (Some(incident), Some(IncidentState::Open)) = (alert.incident(), alert.state()) {
        lines.push(format!("interlock incidents ack {incident} --note \"...\""));
    }
    lines.join("\n") + "\n"
}
