//! Renders the Markdown of this reference as HTML: headings, paragraphs, lists, tables, fenced code, `code`,
//! **bold**, *emphasis* and [links](…). Everything else, including HTML, is text, and all text is escaped.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Escapes text for HTML, including attributes.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

/// The `id` of a heading or an operation.
pub fn anchor(text: &str) -> String {
    let slug: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    slug.trim_matches('-').to_owned()
}

/// The headings of the second level.
pub fn headings(markdown: &str) -> impl Iterator<Item = &str> {
    markdown.lines().filter_map(|line| line.strip_prefix("## "))
}

/// Renders a whole text. `##` becomes a heading of the given level.
pub fn to_html(markdown: &str, level: usize) -> String {
    render(Parser::new_ext(markdown, Options::ENABLE_TABLES), level)
}

/// Renders one line or paragraph, without an element around it.
pub fn inline(text: &str) -> String {
    let events = Parser::new(text);
    render(events.filter(|event| !matches!(event, Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph))), 2)
}

pub fn code_block(code: &str, language: &str) -> String {
    format!("<pre tabindex=\"0\"><code class=\"{}\">{}</code></pre>\n", escape(language), escape(code))
}

fn render<'a>(mut events: impl Iterator<Item = Event<'a>>, level: usize) -> String {
    let mut html = String::new();
    let mut cell = "th";
    // The library closes every element that it opens, and does not nest links.
    let mut target = String::new();
    while let Some(event) = events.next() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = if let CodeBlockKind::Fenced(language) = kind { language } else { "".into() };
                let code: String = events.by_ref().map_while(text_of).collect();
                html += &code_block(code.trim_end_matches('\n'), &language);
            }
            Event::Start(Tag::Heading { .. }) => {
                let inner: Vec<_> =
                    events.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_)))).collect();
                let id = anchor(&inner.iter().cloned().filter_map(text_of).collect::<String>());
                html += &format!("<h{level} id=\"{id}\">{}</h{level}>\n", render(inner.into_iter(), level));
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                target = dest_url.into_string();
                html += &if is_safe(&target) { format!("<a href=\"{}\">", escape(&target)) } else { "[".to_owned() };
            }
            Event::End(TagEnd::Link) if is_safe(&target) => html += "</a>",
            Event::End(TagEnd::Link) => html += &format!("]({})", escape(&target)),
            Event::Start(Tag::Paragraph) => html += "<p>",
            Event::End(TagEnd::Paragraph) => html += "</p>\n",
            Event::Start(Tag::List(_)) => html += "<ul>\n",
            Event::End(TagEnd::List(_)) => html += "</ul>\n",
            Event::Start(Tag::Item) => html += "<li>",
            Event::End(TagEnd::Item) => html += "</li>\n",
            Event::Start(Tag::Emphasis) => html += "<em>",
            Event::End(TagEnd::Emphasis) => html += "</em>",
            Event::Start(Tag::Strong) => html += "<strong>",
            Event::End(TagEnd::Strong) => html += "</strong>",
            // So that a wide table scrolls, and not the page.
            Event::Start(Tag::Table(_)) => html += "<div class=\"table\"><table>\n",
            Event::End(TagEnd::Table) => html += "</tbody>\n</table></div>\n",
            Event::Start(Tag::TableHead) => {
                cell = "th";
                html += "<thead><tr>";
            }
            Event::End(TagEnd::TableHead) => {
                cell = "td";
                html += "</tr>\n</thead>\n<tbody>";
            }
            Event::Start(Tag::TableRow) => html += "<tr>",
            Event::End(TagEnd::TableRow) => html += "</tr>\n",
            Event::Start(Tag::TableCell) => html += &format!("<{cell}>"),
            Event::End(TagEnd::TableCell) => html += &format!("</{cell}>"),
            Event::Code(code) => html += &format!("<code>{}</code>", escape(&code)),
            event => html += &escape(&text_of(event).unwrap_or_default()),
        }
    }
    html
}

/// Other links remain text.
fn is_safe(target: &str) -> bool {
    target.starts_with("https://") || target.starts_with('#')
}

/// The text of an event; `None` for the start or the end of an element.
fn text_of(event: Event<'_>) -> Option<String> {
    match event {
        Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => Some(text.into_string()),
        Event::SoftBreak | Event::HardBreak => Some("\n".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constructs_that_the_reference_uses_are_understood() {
        for (markdown, html) in [
            ("a `b<c` **d** *e*", "<p>a <code>b&lt;c</code> <strong>d</strong> <em>e</em></p>\n"),
            ("**`a`.** b\nc", "<p><strong><code>a</code>.</strong> b\nc</p>\n"),
            ("## First steps", "<h2 id=\"first-steps\">First steps</h2>\n"),
            ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
            ("[a](https://b.example)", "<p><a href=\"https://b.example\">a</a></p>\n"),
            ("```sh\na && b\n```", "<pre tabindex=\"0\"><code class=\"sh\">a &amp;&amp; b</code></pre>\n"),
        ] {
            assert_eq!(to_html(markdown, 2), html);
        }
        let table = to_html("| a | b |\n|---|---|\n| `c` | |\n", 2);
        assert!(table.contains("<thead><tr><th>a</th><th>b</th></tr>"), "{table}");
        assert!(table.contains("<tbody><tr><td><code>c</code></td><td></td></tr>"), "{table}");
    }

    #[test]
    fn text_is_never_interpreted_as_markup() {
        for text in [
            "<script>alert(1)</script>",
            "a & b",
            "\" onload='x'",
            "`<b>`",
            "**<b>**",
            "[<b>](#\"><b>)",
            "*a",
            "`",
            "[",
        ] {
            let html = to_html(text, 2);
            for forbidden in ["<script", "<b>", "\" on", "'x'"] {
                assert!(!html.contains(forbidden), "{html}");
            }
        }
        assert_eq!(inline("[a](javascript:alert(1))"), "[a](javascript:alert(1))");
    }
}
