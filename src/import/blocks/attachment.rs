//! Pictures, sounds and files in messages, as the APIs spell them: taken out as their bytes.

use serde_json::Value;

use crate::import::record::{extract, extract_base64, extract_data_url};
use crate::import::request::FrameRequest;

/// Anthropic's: `source` with base64, text, a URL, or blocks.
pub(super) fn take_source(block: &mut Value, frame: &mut FrameRequest, name: &str, strict: bool) {
    let Some(source) = block.get_mut("source") else {
        return;
    };
    let media = text(source, "media_type").map(str::to_owned);
    // A media type of the file is passed on where a frame may carry it.
    let media = media.filter(|media| onrecord_core::frame::check_media(media).is_ok());
    let base64 = text(source, "type") == Some("base64");
    for member in ["data", "url", "content"] {
        match source.get_mut(member) {
            Some(slot) if member == "data" && base64 => {
                extract_base64(slot, frame, name, media.as_deref());
            }
            Some(slot) => extract(slot, frame, name, strict),
            None => {}
        }
    }
}

/// OpenAI's: `image_url` is an object with a `url`, or the URL itself.
pub(super) fn take_image(block: &mut Value, frame: &mut FrameRequest) {
    let slot = match block.get_mut("image_url") {
        Some(Value::Object(image)) => image.get_mut("url"),
        other => other,
    };
    if let Some(slot) = slot.filter(|slot| slot.is_string()) {
        extract_data_url(slot, frame, "image");
    }
}

pub(super) fn take_audio(block: &mut Value, frame: &mut FrameRequest) {
    let Some(audio) = block.get_mut("input_audio") else {
        return;
    };
    let media = match text(audio, "format") {
        Some("wav") => Some("audio/wav"),
        Some("mp3") => Some("audio/mpeg"),
        _ => None,
    };
    if let Some(slot) = audio.get_mut("data").filter(|slot| slot.is_string()) {
        extract_base64(slot, frame, "audio", media);
    }
}

/// OpenAI's: `file_data`, in the block itself or in its `file`.
pub(super) fn take_file(block: &mut Value, frame: &mut FrameRequest) {
    let file = match block.get("file").is_some_and(Value::is_object) {
        true => &mut block["file"],
        false => block,
    };
    let slot = file.get_mut("file_data").filter(|slot| slot.is_string());
    if let Some(slot) = slot {
        extract_data_url(slot, frame, "file");
    }
}

fn text<'a>(value: &'a Value, member: &str) -> Option<&'a str> {
    value.get(member)?.as_str()
}
