//! `[admin]`: settings of the operator's listener.

use std::net::SocketAddr;

use super::{error::SettingError, http::ADDRESS, layers::LayeredSettings};

/// The settings of the listener for metrics, liveness and readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Address and port to listen on; port 0 means any free port.
    pub listen: SocketAddr,
}

impl AdminConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self { listen: settings.parsed("admin.listen", ADDRESS, |text| text.parse().ok())? })
    }
}
