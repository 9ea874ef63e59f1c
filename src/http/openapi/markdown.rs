//! The Markdown that this reference is written in, as HTML: headings, paragraphs, lists, tables, fenced code, `code`,
//! **bold**, *emphasis* and [links](…). Everything else is text, and all text is escaped.

/// Text that may stand in HTML, in an attribute too.
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

/// Its headings of the second level.
pub fn headings(markdown: &str) -> impl Iterator<Item = &str> {
    markdown.lines().filter_map(|line| line.strip_prefix("## "))
}

/// A whole text. `##` becomes a heading of the given level.
pub fn to_html(markdown: &str, level: usize) -> String {
    let mut html = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            html += &code_block(&code.join("\n"), language);
        } else if let Some(heading) = line.strip_prefix("## ") {
            let id = anchor(heading);
            html += &format!("<h{level} id=\"{id}\">{}</h{level}>\n", inline(heading));
        } else if line.starts_with('|') {
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(row);
            }
            html += &table(&rows);
        } else if line.starts_with("- ") {
            let mut items = vec![line];
            while let Some(item) = lines.next_if(|line| line.starts_with("- ")) {
                items.push(item);
            }
            let items: String = items.iter().map(|item| format!("<li>{}</li>\n", inline(&item[2..]))).collect();
            html += &format!("<ul>\n{items}</ul>\n");
        } else {
            let mut text = line.to_owned();
            while let Some(more) = lines.next_if(|line| is_text(line)) {
                text.push('\n');
                text += more;
            }
            html += &format!("<p>{}</p>\n", inline(&text));
        }
    }
    html
}

fn is_text(line: &str) -> bool {
    !line.trim().is_empty() && !["```", "## ", "|", "- "].iter().any(|start| line.starts_with(start))
}

pub fn code_block(code: &str, language: &str) -> String {
    format!("<pre tabindex=\"0\"><code class=\"{}\">{}</code></pre>\n", escape(language), escape(code))
}

fn table(rows: &[&str]) -> String {
    let row = |line: &str, cell: &str| {
        let inner = line.trim().trim_start_matches('|');
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let cells: String = inner.split('|').map(|text| format!("<{cell}>{}</{cell}>", inline(text.trim()))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    // The second line only marks the first as the head.
    let head = rows.first().map(|line| row(line, "th")).unwrap_or_default();
    let body: String = rows.iter().skip(2).map(|line| row(line, "td")).collect();
    format!("<div class=\"table\"><table>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table></div>\n")
}

/// One line or paragraph.
pub fn inline(text: &str) -> String {
    let mut html = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        html += &escape(&rest[..at]);
        let marked = &rest[at..];
        let (piece, length) = span(marked).unwrap_or_else(|| (escape(&marked[..1]), 1));
        html += &piece;
        rest = &marked[length..];
    }
    html + &escape(rest)
}

/// What a mark starts, as HTML, and how long it is; `None` where the mark is not closed.
fn span(text: &str) -> Option<(String, usize)> {
    let enclosed = |mark: &str| {
        let inner = text.strip_prefix(mark)?;
        let end = inner.find(mark).filter(|end| *end > 0)?;
        Some((&inner[..end], end + 2 * mark.len()))
    };
    if let Some((code, length)) = enclosed("`") {
        return Some((format!("<code>{}</code>", escape(code)), length));
    }
    if let Some((bold, length)) = enclosed("**") {
        return Some((format!("<strong>{}</strong>", inline(bold)), length));
    }
    if let Some((emphasis, length)) = enclosed("*") {
        return Some((format!("<em>{}</em>", inline(emphasis)), length));
    }
    let (label, target) = text.strip_prefix('[')?.split_once("](")?;
    let (target, _) = target.split_once(')')?;
    let is_safe = target.starts_with("https://") || target.starts_with('#');
    let length = label.len() + target.len() + 4;
    is_safe.then(|| (format!("<a href=\"{}\">{}</a>", escape(target), inline(label)), length))
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
    fn nothing_in_a_text_becomes_markup_of_its_own() {
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
