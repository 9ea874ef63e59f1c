//! `[admin]`: the operator's listener.

use std::net::SocketAddr;

use super::{error::SettingError, http::ADDRESS, layers::Settings};

/// The settings of the listener for metrics, liveness and readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Admin {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self { listen: settings.parsed("admin.listen", ADDRESS, |text| text.parse().ok())? })
    }
}
