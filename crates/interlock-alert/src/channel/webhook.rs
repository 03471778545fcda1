//! A webhook: the alert as JSON, posted and signed.

use std::collections::BTreeMap;

use interlock_config::server::AlertFormat;
use interlock_core::pipeline::Secret;
use interlock_trigger::web::{Call, Web};
use jiff::SignedDuration;

use super::{
    payload,
    post::{idempotency_key, post},
};
use crate::signature::sign;
use interlock_ports::channel::{AlertMessage, Delivery};

/// Where to, and what with.
pub(crate) struct Webhook {
    pub(crate) url: Secret,
    pub(crate) secret: Option<Secret>,
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) format: AlertFormat,
    pub(crate) time_limit: SignedDuration,
}

impl Webhook {
    /// Posts an alert.
    pub(crate) async fn deliver(self, web: Web, notice: AlertMessage) -> Delivery {
        match post(&web, &self.call(&notice), notice.at).await {
            Ok(_taken) => Delivery::Delivered,
            Err(delivery) => delivery,
        }
    }

    fn call(&self, notice: &AlertMessage) -> Call {
        let body = payload(self.format, &notice.alert).to_string();
        let timestamp = notice.at.as_second().to_string();
        // Ours come last, and the last one wins.
        let mut headers: Vec<(String, String)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect();
        if let Some(secret) = &self.secret {
            let signature = sign(secret.expose(), &timestamp, &body);
            headers.push(("X-Interlock-Signature".to_owned(), signature));
        }
        headers.push(("X-Interlock-Timestamp".to_owned(), timestamp));
        headers.push(idempotency_key(notice));
        Call {
            method: "POST".to_owned(),
            url: self.url.expose().to_owned(),
            headers,
            body: Some(body),
            timeout: self.time_limit,
        }
    }
}
