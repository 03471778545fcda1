//! Who is told, and how.

use std::collections::BTreeMap;

use interlock_core::pipeline::Secret;

use crate::{
    decode::{Decoder, count, dict, flag, text, texts},
    problem::Code,
    server::{Alert, AlertFilter, AlertFormat, Channel, Email, MailTls, Slack},
    shape::TYPE,
    yaml::Node,
};

impl Decoder<'_> {
    pub(super) fn alerts(&mut self, root: &Node) -> Vec<Alert> {
        let Some(node) = root.get("alerts") else {
            let when = AlertFilter::default();
            let (name, channel) = ("console".to_owned(), Channel::Console);
            let (after, repeat, digest, format) = (None, None, None, AlertFormat::default());
            let (findings, of, recovered) = (1, 0, 1);
            return vec![Alert {
                name,
                channel,
                when,
                after,
                findings,
                of,
                recovered,
                repeat,
                runbook: None,
                digest,
                format,
            }];
        };
        let mut alerts: Vec<Alert> = Vec::new();
        for item in node.items() {
            let Some(channel) = self.channel(item) else { continue };
            let kind = text(item, TYPE).unwrap_or_default();
            let named = text(item, "name");
            let taken = |name: &str| alerts.iter().any(|alert| alert.name == name);
            if let Some(name) = named.as_deref().filter(|name| taken(name)) {
                let at = item.get("name").map_or(item.span, |name| name.span);
                let message = format!("two alert channels have the name `{name}`");
                self.problems.add(at, Code::Repeated, message, "Choose another name.");
            }
            // Unnamed channels of one kind are counted: webhook, webhook-2.
            let name = named.unwrap_or_else(|| {
                let numbered = (2..).map(|n| format!("{kind}-{n}"));
                std::iter::once(kind.clone()).chain(numbered).find(|n| !taken(n)).unwrap_or(kind)
            });
            let (after, repeat) = (self.duration(item, "after"), self.duration(item, "repeat"));
            let (findings, digest) = (count(item, "findings").unwrap_or(1), flag(item, "digest"));
            let of = self.of_the_last(item, findings);
            let recovered = count(item, "recovered").unwrap_or(1);
            let (when, format) = (filter(item), self.format(item));
            alerts.push(Alert {
                name,
                channel,
                when,
                after,
                findings,
                of,
                recovered,
                repeat,
                runbook: text(item, "runbook"),
                digest,
                format,
            });
        }
        alerts
    }

    /// Of how many slots; 0 when it is not said.
    fn of_the_last(&mut self, item: &Node, findings: u32) -> u32 {
        let Some(of) = count(item, "of") else { return 0 };
        if of <= findings
            && let Some(node) = item.get("of")
        {
            let message = format!("{findings} of the last {of} would be all of them");
            let help =
                "Let `of` be more than `findings`, or leave it away: then they must come in a row.";
            self.problems.add(node.span, Code::OutOfRange, message, help);
        }
        of
    }

    /// What a program is sent. Each event is sent by itself: there is none that stands for many.
    fn format(&mut self, item: &Node) -> AlertFormat {
        let Some("events") = item.get("format").and_then(Node::text) else {
            return AlertFormat::Alert;
        };
        if let Some(node) = item.get("digest").filter(|_| flag(item, "digest") == Some(true)) {
            let message = "a digest is no event: `format: events` sends each by itself";
            self.problems.add(node.span, Code::Conflict, message, "Leave `digest` away.");
        }
        AlertFormat::Events
    }

    fn channel(&mut self, node: &Node) -> Option<Channel> {
        Some(match node.get(TYPE)?.text()? {
            "file" => Channel::File { path: text(node, "path")?.into() },
            "webhook" => Channel::Webhook {
                secret: self.secret(node, "secret"),
                headers: self.resolved_values(node, "headers"),
                url: self.secret_url(node, "url")?,
            },
            "slack" => Channel::Slack(self.slack(node)?),
            "email" => Channel::Email(self.email(node)?),
            "pagerduty" => Channel::Pagerduty {
                url: node.get("url").and_then(|_| self.secret_url(node, "url")),
                routing_key: self.secret(node, "routingKey")?,
            },
            "http" => Channel::Http {
                method: text(node, "method").unwrap_or_else(|| "POST".to_owned()),
                headers: self.resolved_values(node, "headers"),
                body: text(node, "body"),
                url: self.secret_url(node, "url")?,
            },
            "console" => Channel::Console,
            // A kind that is refused.
            _ => return None,
        })
    }

    fn slack(&mut self, node: &Node) -> Option<Slack> {
        let slack = Slack {
            url: node.get("url").and_then(|_| self.secret_url(node, "url")),
            token: self.secret(node, "token"),
            channel: text(node, "channel"),
        };
        if node.get("token").is_some() && slack.channel.is_none() {
            let message = "a Slack bot needs to know in which `channel` it writes";
            self.problems.add(node.span, Code::MissingKey, message, "Write `channel: \"#ops\"`.");
            return None;
        }
        Some(slack)
    }

    fn email(&mut self, node: &Node) -> Option<Email> {
        let email = Email {
            username: self.resolved(node, "username"),
            password: self.secret(node, "password"),
            from: text(node, "from")?,
            to: texts(node, "to"),
            tls: match node.get("tls").and_then(Node::text) {
                Some("tls") => MailTls::Tls,
                Some("none") => MailTls::None,
                Some(_) | None => MailTls::Starttls,
            },
            smtp: self.resolved(node, "smtp")?,
        };
        let (host, port) = email.smtp.rsplit_once(':').unwrap_or_default();
        if host.is_empty() || port.parse::<u16>().is_err() {
            let at = node.get("smtp").map_or(node.span, |smtp| smtp.span);
            let message = "`smtp` is not a host and a port";
            self.problems.add(at, Code::Url, message, "Write `mail.example.com:587`.");
            return None;
        }
        if email.username.is_some() && email.tls == MailTls::None && email.password.is_some() {
            let at = node.get("tls").map_or(node.span, |tls| tls.span);
            let message = "the password would be sent where others can read it";
            let help = "Leave `tls: none` for servers that ask for no password.";
            self.problems.add(at, Code::Conflict, message, help);
        }
        Some(email)
    }

    fn resolved_values(&mut self, map: &Node, key: &str) -> BTreeMap<String, Secret> {
        let Some(node) = map.get(key) else { return BTreeMap::new() };
        let mut values = BTreeMap::new();
        for entry in node.entries() {
            if let Some(value) = self.resolved(node, &entry.key) {
                values.insert(entry.key.clone(), Secret::new(value));
            }
        }
        values
    }

    /// An address that is itself a secret: it is never shown, whatever is wrong with it.
    pub(super) fn secret_url(&mut self, map: &Node, key: &str) -> Option<Secret> {
        let node = map.get(key)?;
        let url = self.resolved(map, key)?;
        if url.starts_with("https://") || url.starts_with("http://") {
            return Some(Secret::new(url));
        }
        let message = format!("`{key}` is not an http or https URL");
        self.problems.add(node.span, Code::Url, message, "Write `https://host/path`.");
        None
    }
}

fn filter(node: &Node) -> AlertFilter {
    let Some(node) = node.get("when") else { return AlertFilter::default() };
    AlertFilter {
        levels: texts(node, "levels"),
        types: texts(node, "types"),
        pipelines: texts(node, "pipelines"),
        owners: texts(node, "owners"),
        labels: dict(node, "labels"),
    }
}
