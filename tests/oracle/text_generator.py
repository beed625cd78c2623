"""Random texts and searches in several languages, from few words so that they meet. Seeded."""

from __future__ import annotations

from random import Random
from typing import Any

Document = dict[str, Any]

_TEXTS = {
    "english": (
        "run running runs runner dog dogs Dog the a is not don't can't it's isn't café cafe Café naïve naive "
        "happy happily happiness generous generously data database databases skies sky dying die added adding "
        "resume résumé I'll O'Neill dogs' co-operate cooperate ﬁre MongoDB mongo db x 42 1.5 emergency only "
        "itself"
    ),
    "german": (
        "Haus Häuser hauses häuslich laufen läuft gelaufen der die das unsere unser und nicht über Übung "
        "Übungen groß grosse größer straße Strasse aktuellen aktuell verwendet verwenden kein keine unsem "
        "schön schon Mädchen"
    ),
    "french": (
        "naïf naïve haïr ambiguë ambiguïté Haus héroïque maïs "
        "cheval chevaux le la les des manger mangeait mangé mange été ete où ou continuellement continuation "
        "français française Françaises l'eau eau d'un un être avoir élève élèves garçon heureux heureuse"
    ),
    "spanish": (
        "niño niña niños correr corriendo corrió el la los de que no canción canciones rápidamente rápido año "
        "años ano mañana manana está esta estaban trabajar trabajando trabajador señor"
    ),
    "dutch": "hond honden de het en niet België belgie ideeën idee officiële lopen loopt gelopen boeken boek",
    "swedish": (
        "hund hundar hunden och det inte flicka flickor flickorna resultatet resultat tillåtet åka åker över öl"
    ),
    "portuguese": (
        "execução execuções informação informações coração corações não os as de rapidamente rápido feliz felicidade pão pães "
        "mãe mães estação estações é e"
    ),
    "hungarian": (
        "ház házak házban könyv könyvet könyvek fiúk nőt nők ettől önökről és a az nem gyűjtő repülő időben idő"
    ),
    "none": ("run running the dog dogs café cafe don't Dog is"),
}
WORDS = {language: text.split() for language, text in _TEXTS.items()}
LANGUAGES = ("english", "english", "german", "french", "spanish", "swedish", "none", "portuguese", "hungarian", "dutch")
SEPARATORS = (" ", " ", " ", " ", ", ", ". ", "-", "! ", " – ", "\t", "\n", "'", "…", "/", "_", "  ")


class Generator:
    """One collection: an index and what it is asked."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.language = self.random.choice(LANGUAGES)
        self.mixed = self.random.random() < 0.4

    def index(self) -> tuple[list[tuple[str, str]], Document]:
        """Keys and options, as create_index takes them."""
        options: Document = {"default_language": self.language}
        if self.mixed and self.random.random() < 0.5:
            options["language_override"] = "idioma"
        if self.random.random() < 0.25:
            return [("$**", "text")], options
        fields = self.random.sample(("title", "body", "tags", "part.text", "parts.text"), self.random.randint(1, 4))
        options["weights"] = {field: self.random.choice((1, 2, 10)) for field in fields}
        return [(field, "text") for field in fields], options

    def text(self, language: str) -> str:
        words = WORDS[language if self.random.random() < 0.9 else "english"]
        drawn = [self.random.choice(words) for _ in range(self.random.randint(1, 7))]
        if self.random.random() < 0.2:
            drawn = [word.upper() for word in drawn]
        return "".join(word + self.random.choice(SEPARATORS) for word in drawn[:-1]) + drawn[-1]

    def document(self, identifier: int) -> Document:
        language, spoken = self.language, {}
        if self.mixed and self.random.random() < 0.5:
            language = self.random.choice(LANGUAGES)
            spoken = {self.random.choice(("language", "language", "idioma")): language}
        part: Document = {"text": self.text(language), "n": 1}
        if self.mixed and self.random.random() < 0.3:
            part["language"] = self.random.choice(LANGUAGES)
        fields: Document = {
            "title": self.text(language),
            "body": self.text(language) if self.random.random() < 0.9 else 5,
            "tags": [self.text(language) for _ in range(self.random.randint(0, 3))]
            + self.random.choice(([], [["x"]], [1])),
            "part": part,
            "parts": [{"text": self.text(language)} for _ in range(self.random.randint(0, 2))],
            "other": self.text(language),
        }
        kept = {name: value for name, value in fields.items() if self.random.random() < 0.5}
        return {"_id": identifier, **spoken, **kept}

    def search(self) -> Document:
        parts = []
        for _ in range(self.random.randint(1, 3)):
            word = self.random.choice(WORDS[self.language])
            draw = self.random.random()
            if draw < 0.6:
                parts.append(word)
            elif draw < 0.75:
                parts.append(f"-{word}")
            elif draw < 0.9:
                phrase = self.random.choice((word, word[:3], f"{word} {self.random.choice(WORDS[self.language])}"))
                parts.append(f'"{phrase}"')
            else:
                parts.append(self.random.choice((f'-"{word}"', f"{word}-x", f"- {word}", '"', f'"{word}', f"{word}.")))
        text: Document = {"$search": " ".join(parts)}
        if self.random.random() < 0.15:
            text["$language"] = self.random.choice((*LANGUAGES, "en", "Klingon"))
        if self.random.random() < 0.2:
            text["$caseSensitive"] = self.random.random() < 0.8
        if self.random.random() < 0.2:
            text["$diacriticSensitive"] = self.random.random() < 0.8
        return text
