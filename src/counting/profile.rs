//! What is counted of a hit beside its time.

use std::sync::Arc;

use super::places::VisitorPlace;
use crate::domain::agent::{Browser, OperatingSystem};
use crate::domain::bots::BotKind;
use crate::domain::breakdown::{Dimension, SheetLabel, kept_text};
use crate::domain::device::Device;
use crate::domain::hit::HitId;
use crate::domain::language::Language;
use crate::domain::link::{Revision, ShortId};
use crate::domain::live_hit::LiveHit;
use crate::domain::tally::Tally;
use crate::domain::utm::{UTM_COUNT, UTM_PARAMETERS};

/// The label of a hit in a dimension.
pub type ProfileLabel = (Dimension, SheetLabel<Arc<str>>);

/// What is counted of a hit beside its time. Hits with the same properties share one.
#[derive(Debug, PartialEq, Eq)]
pub struct HitProfile {
    /// Differs from those of all other profiles of a process.
    pub number: u64,
    pub device: Device,
    pub bot: Option<BotKind>,
    /// Whether the visitor wants no tracking.
    pub is_private: bool,
    /// In the order of dimensions, of which each has at most one; those of device and bot are among them.
    pub labels: Vec<ProfileLabel>,
}

impl HitProfile {
    /// A number of hits.
    pub fn tally(&self, count: u64) -> Tally {
        if self.bot.is_some() { Tally { persons: 0, bots: count } } else { Tally { persons: count, bots: 0 } }
    }

    /// A hit with this profile, as live streams tell it.
    pub fn live_hit(&self, id: HitId, link: ShortId, revision: Revision) -> LiveHit {
        let text = |dimension| {
            let (_, label) = self.labels.iter().find(|(of, _)| *of == dimension)?;
            label.text(dimension).map(Box::from)
        };
        LiveHit {
            id,
            link,
            revision,
            device: text(Dimension::Device),
            browser: text(Dimension::Browser),
            system: text(Dimension::Os),
            country: text(Dimension::Country),
            language: text(Dimension::Language),
            referrer: text(Dimension::Referrer),
            destination: text(Dimension::Destination),
            bot: text(Dimension::Bot),
        }
    }
}

/// What a user agent tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTraits {
    pub device: Device,
    pub browser: Browser,
    pub system: OperatingSystem,
    /// By the list alone.
    pub bot: Option<BotKind>,
}

/// The values of UTM parameters.
pub type UtmTexts = [Option<Arc<str>>; UTM_COUNT];

/// The properties of a hit, of which a profile is made. Texts that are the same object are the same: to compare two of
/// these takes a few instructions.
#[derive(Clone, Debug)]
pub struct HitProperties {
    pub agent: AgentTraits,
    /// By all that is known of the hit.
    pub bot: Option<BotKind>,
    pub referrer: Option<Arc<str>>,
    pub place: Option<Arc<VisitorPlace>>,
    pub language: Option<Language>,
    pub utm: Option<Arc<UtmTexts>>,
    pub route: u16,
    pub is_private: bool,
}

impl HitProperties {
    /// Whether both have the same objects. `false` says nothing.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_text =
            |a: &Option<Arc<str>>, b: &Option<Arc<str>>| address_of(a.as_ref()) == address_of(b.as_ref());
        self.agent == other.agent
            && self.bot == other.bot
            && self.language == other.language
            && self.route == other.route
            && self.is_private == other.is_private
            && is_same_text(&self.referrer, &other.referrer)
            && address_of(self.place.as_ref()) == address_of(other.place.as_ref())
            && address_of(self.utm.as_ref()) == address_of(other.utm.as_ref())
    }

    /// What [`is_same`](Self::is_same) compares, to be hashed.
    pub fn identity(&self) -> impl std::hash::Hash + use<> {
        let codes = [
            self.agent.device as u8,
            self.agent.browser.code(),
            self.agent.system.code(),
            BotKind::code(self.agent.bot),
            BotKind::code(self.bot),
            u8::from(self.is_private),
        ];
        let texts =
            (address_of(self.referrer.as_ref()), address_of(self.place.as_ref()), address_of(self.utm.as_ref()));
        (codes, self.language.map(Language::code), self.route, texts)
    }

    /// The profile of hits with these properties.
    pub fn profile(&self, number: u64) -> HitProfile {
        let mut labels = Vec::with_capacity(Dimension::ALL.len());
        let text = |text: &Arc<str>| {
            let kept = kept_text(text);
            let label = if kept.len() == text.len() { Arc::clone(text) } else { kept.into() };
            SheetLabel::of_text(Dimension::Referrer, label)
        };
        for dimension in Dimension::ALL {
            if self.is_private && dimension.is_of_visitor() {
                continue;
            }
            let place = self.place.as_deref();
            let label = match dimension {
                Dimension::Referrer => self.referrer.as_ref().and_then(text),
                Dimension::Country => {
                    place.and_then(|place| SheetLabel::of_text(dimension, Arc::clone(&place.country)))
                }
                Dimension::Region => place.and_then(|place| place.region.as_ref()).and_then(text),
                Dimension::City => place.and_then(|place| place.city.as_ref()).and_then(text),
                Dimension::Device => Some(SheetLabel::Code(self.agent.device as u8)),
                Dimension::Browser => Some(SheetLabel::Code(self.agent.browser.code() - 1)),
                Dimension::Os => Some(SheetLabel::Code(self.agent.system.code() - 1)),
                Dimension::Language => self.language.and_then(|language| text(&language.to_string().into())),
                Dimension::Destination => text(&destination(self.route)),
                Dimension::Bot => self.bot.map(|bot| SheetLabel::Code(bot as u8 - 1)),
                Dimension::UtmSource
                | Dimension::UtmMedium
                | Dimension::UtmCampaign
                | Dimension::UtmTerm
                | Dimension::UtmContent => {
                    let place = UTM_PARAMETERS.iter().position(|(_, of)| *of == dimension);
                    let texts = self.utm.as_deref().zip(place);
                    texts.and_then(|(texts, place)| texts[place].as_ref()).and_then(text)
                }
            };
            labels.extend(label.map(|label| (dimension, label)));
        }
        HitProfile { number, device: self.agent.device, bot: self.bot, is_private: self.is_private, labels }
    }
}

/// The label of what led to the answered target: the rule's number is in the low byte and the variant's in the high byte.
fn destination(route: u16) -> Arc<str> {
    match route.to_le_bytes() {
        [0, _] => "default".into(),
        [rule, 0] => rule.to_string().into(),
        [rule, variant] => format!("{rule}/{variant}").into(),
    }
}

fn address_of<T: ?Sized>(text: Option<&Arc<T>>) -> Option<*const ()> {
    text.map(|text| Arc::as_ptr(text).cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::breakdown::LabelForm;

    #[test]
    fn codes_of_labels_are_those_of_their_types() {
        let labels = |dimension: Dimension| match dimension.form() {
            LabelForm::Codes(labels) => labels,
            _ => &[],
        };
        for device in Device::ALL {
            assert_eq!(labels(Dimension::Device)[device as usize], device.label());
        }
        for browser in Browser::ALL {
            assert_eq!(labels(Dimension::Browser)[usize::from(browser.code() - 1)], browser.label());
        }
        for system in OperatingSystem::ALL {
            assert_eq!(labels(Dimension::Os)[usize::from(system.code() - 1)], system.label());
        }
        for bot in BotKind::ALL {
            assert_eq!(labels(Dimension::Bot)[bot as usize - 1], bot.label());
        }
    }

    #[test]
    fn a_destination_is_told_by_its_places() {
        assert_eq!(
            [0, 1, 0x0201, 0x0100].map(|route| destination(route).to_string()),
            ["default", "1", "1/2", "default"]
        );
    }
}
