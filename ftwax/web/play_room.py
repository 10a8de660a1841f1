"""A room: one game, its seats, its people, and its clock.

People send requests as messages, such as `{'do': 'sit', 'seat': 1}`, each
handled by a method below, and receive messages. A request that cannot be
granted is answered by a sentence; no message can stop the room. A room is used
by a single event loop, and the game steps in a thread.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from absl import logging

from ftwax.inference import browser_members, live_game, named_players
from ftwax.inference import playable as playable_lib
from ftwax.reporting import saved_games

# Steps per second that people can choose. The paper's agents act 15 times a
# second; hands are slower.
SPEEDS = range(3, 16)
_FIRST_SPEED = 6

# Wins that end a match: best of three.
_MOST_WINS = 2

_MAX_NAME_LENGTH = 24

# Of the games until the first one is prepared.
_NUM_WARM_UP_MAPS = 4
_MAX_PEOPLE = 32


# A message from or to a page, plain JSON.
Message = Mapping[str, Any]

# Sends a message to a person's page without blocking.
Send = Callable[[Message], None]


class RequestError(Exception):
  """A request that cannot be granted; the message is shown to people."""


@dataclasses.dataclass(eq=False)
class Person:
  """A person in the room.

  Attributes:
    name: name shown to all.
    send: sends a message to the person's page without blocking.
    sees_all: whether to show the whole map instead of an agent's view.
    watches: the seat whose view is shown to a person without a seat.
    looks_inside: whether to send internal values of members.
    down: keys that are down, as indices into `GamePage.keys`.
    pressed: keys that went down since the last step.
    num_messages: number of key messages received.
    num_applied: number of key messages taken into account by the last step.
  """

  name: str
  send: Send
  sees_all: bool = True
  watches: int = 0
  looks_inside: bool = False
  down: set[int] = dataclasses.field(default_factory=set)
  pressed: set[int] = dataclasses.field(default_factory=set)
  num_messages: int = 0
  num_applied: int = 0


class Room:
  """One game with its seats and people."""

  def __init__(
    self, playable: playable_lib.PlayableGame, saved: saved_games.SavedGames
  ):
    """Makes a room for a game; `saved` stores finished games."""
    self._playable = playable
    self._saved = saved
    self._game = live_game.LiveGame(playable)
    self._people: list[Person] = []
    self._seats = _first_seats(playable)
    self._phase = 'waiting'  # Or preparing, ready, playing, paused, over.
    self._next_phase = 'ready'  # After preparing.
    self._speed = _FIRST_SPEED
    self._clock: asyncio.Task[None] | None = None
    self._saving: asyncio.Task[Any] | None = None  # The loop's is weak.
    self._hurry = asyncio.Event()
    # The person who last played on a seat in this game, and wins by team.
    self._played: dict[int, str] = {}
    self._wins = [0] * (max(playable.teams) + 1)
    self._moment: live_game.Moment | None = None
    # A single thread, since renderers of Python games may not be thread-safe.
    self._thread = futures.ThreadPoolExecutor(1)

  @property
  def script(self) -> pathlib.Path:
    """The JavaScript file that draws the game."""
    return self._playable.page.script

  def members_script(self) -> str:
    """Returns a script with members that play in the page; '' if none can.

    A page plays with them until the functions of the game are compiled.
    """
    source = self._playable.players.source
    population = source and browser_members.find(source)
    if not population:
      return ''
    data = browser_members.make_data(population, _NUM_WARM_UP_MAPS)
    return browser_members.read_script() + browser_members.to_script(data)

  @property
  def is_empty(self) -> bool:
    """Whether there are no people in the room."""
    return not self._people

  def enter(self, send: Send) -> Person:
    """Adds a person to the room.

    Raises:
      RequestError: if the room is full.
    """
    if len(self._people) >= _MAX_PEOPLE:
      raise RequestError(f'The room is full: {_MAX_PEOPLE} people are in it.')
    person = Person(self._free_name('player'), send)
    self._people.append(person)
    person.send(
      {
        'hello': self._playable.name,
        'script': self._playable.page.script.stem,
        'keys': [key._asdict() for key in self._playable.page.keys],
        'teams': self._playable.teams,
        'players': self._playable.players.names,
        'speeds': [min(SPEEDS), max(SPEEDS)],
      }
    )
    if self._phase == 'waiting':
      self._start(random.getrandbits(31), 'ready')
    self._broadcast()
    if self._moment is not None:
      person.send({'facts': self._game.facts})
      self._show(person)
    return person

  def leave(self, person: Person) -> None:
    """Removes a person; an empty room forgets its game and its seats."""
    self._people.remove(person)
    self._empty_seats_of(person)
    if not self._people:
      self._give_up(person)
      self._seats = _first_seats(self._playable)
      self._speed, self._moment = _FIRST_SPEED, None
      self._wins = [0] * len(self._wins)
      self._phase = 'waiting'
    self._broadcast(f'{person.name} left.')

  async def close(self) -> None:
    """Stops the clock."""
    if self._clock is not None:
      self._clock.cancel()
      await asyncio.gather(self._clock, return_exceptions=True)
      self._clock = None

  def request(self, person: Person, message: Any) -> None:
    """Handles a request of a person, or answers why it cannot be granted."""
    try:
      do = message.get('do') if isinstance(message, dict) else None
      method = getattr(self, f'_do_{do}', None) if isinstance(do, str) else None
      if method is None:
        raise RequestError('The page sent an unknown request.')
      method(person, message)
    except RequestError as error:
      person.send({'error': str(error)})

  def _do_keys(self, person: Person, message: Message) -> None:
    down, keys = message.get('down'), range(len(self._playable.page.keys))
    if not isinstance(down, list) or not all(
      type(key) is int and key in keys for key in down
    ):
      raise RequestError('The page sent keys that this game does not have.')
    person.num_messages += 1
    person.pressed |= set(down) - person.down
    playing = {player for player in self._seats if isinstance(player, Person)}
    if set(down) - person.down and playing == {person}:
      self._hurry.set()
    person.down = set(down)

  def _do_name(self, person: Person, message: Message) -> None:
    name = ' '.join(str(message.get('name', '')).split())[:_MAX_NAME_LENGTH]
    if not name:
      raise RequestError('A name must have at least one letter.')
    # Frees the present name, which the person may have typed again.
    person.name = ''
    person.name = self._free_name(name)
    self._broadcast()

  def _do_view(self, person: Person, message: Message) -> None:
    person.sees_all = message.get('all') is not False
    if 'seat' in message:
      person.watches = self._seat_of(message)
    if self._moment is not None:
      self._show(person)

  def _do_look(self, person: Person, message: Message) -> None:
    person.looks_inside = message.get('on') is True

  def _do_speed(self, person: Person, message: Message) -> None:
    speed = message.get('speed')
    if type(speed) is not int or speed not in SPEEDS:
      raise RequestError(
        f'Moves per second must be from {min(SPEEDS)} to {max(SPEEDS)}.'
      )
    self._speed = speed
    self._broadcast()

  def _do_sit(self, person: Person, message: Message) -> None:
    seat = self._free_seat_of(message, person)
    if self._sides_of(person) - {self._playable.teams[seat]}:
      raise RequestError(
        'You have played for the other team; take a seat of your own team, or'
        ' wait for the end of this game.'
      )
    self._empty_seats_of(person)
    self._seats[seat] = person
    self._broadcast()

  def _do_stand(self, person: Person, message: Message) -> None:
    del message
    self._empty_seats_of(person)
    self._broadcast()

  def _do_seat(self, person: Person, message: Message) -> None:
    seat, player = self._free_seat_of(message, person), message.get('player')
    if player not in self._playable.players.names:
      raise RequestError(
        'That player does not exist; choose one from the list.'
      )
    self._seats[seat] = player
    self._broadcast()

  def _do_play(self, person: Person, message: Message) -> None:
    del message
    if self._phase == 'preparing':
      self._next_phase = 'playing'
    elif self._phase in ('paused', 'ready'):
      is_new = self._phase == 'ready'
      self._phase = 'playing'
      self._broadcast('' if is_new else f'{person.name} resumed the game.')
      # Otherwise the clock has not noticed the pause and just goes on.
      if self._clock is None or self._clock.done():
        self._clock = asyncio.create_task(self._run())
    elif self._phase in ('waiting', 'over'):
      self._start(random.getrandbits(31))

  def _do_pause(self, person: Person, message: Message) -> None:
    del message
    if self._phase == 'playing':
      self._phase = 'paused'
      self._broadcast(f'{person.name} paused the game.')

  def _do_restart(self, person: Person, message: Message) -> None:
    del message
    self._give_up(person)
    self._start(self._game.seed)

  def _do_new_map(self, person: Person, message: Message) -> None:
    del message
    self._give_up(person)
    self._start(random.getrandbits(31))

  def _give_up(self, person: Person) -> None:
    """Saves the game as lost by a person who played in it and breaks it off."""
    sides, teams = self._sides_of(person), range(len(self._wins))
    if not sides or len(teams) < 2:
      return
    outcome = [-1.0 if team in sides else 1.0 for team in teams]
    self._saving = asyncio.create_task(self._save(self._count(outcome)))
    self._broadcast(f'{person.name} gave up, which counts as a loss.')

  def _start(self, seed: int, phase: str = 'playing') -> None:
    """Starts a new game, replacing the current one."""
    if self._phase == 'preparing':
      raise RequestError('The game is being prepared; wait a moment.')
    self._phase, self._next_phase = 'preparing', phase
    if max(self._wins) >= _MOST_WINS:
      self._wins = [0] * len(self._wins)
    self._broadcast()
    self._clock = asyncio.create_task(self._run(self._clock, seed))

  async def _run(
    self, before: asyncio.Task[None] | None = None, seed: int | None = None
  ) -> None:
    """Steps the game at its speed until it pauses or ends.

    Args:
      before: task of the previous game, which is cancelled first.
      seed: seed of a new game; None to continue the current one.
    """
    if before is not None:
      # Its last step may go on in the thread, where the next one waits for it.
      before.cancel()
      await asyncio.gather(before, return_exceptions=True)
    try:
      if seed is not None:
        await self._prepare(seed)
      clock = asyncio.get_running_loop().time
      due = clock()
      while self._phase == 'playing':
        start, due = due, max(due + 1 / self._speed, clock())
        await asyncio.sleep(max(start + 1 / max(SPEEDS) - clock(), 0.0))
        # A key does not wait for the next step, and the clock goes on from it.
        with contextlib.suppress(asyncio.TimeoutError):
          await asyncio.wait_for(self._hurry.wait(), max(due - clock(), 0.0))
          due = clock()
        if self._phase == 'playing':
          await self._step()
    except Exception as error:  # The server must survive any error.
      self._fail(error)

  async def _prepare(self, seed: int) -> None:
    names = [self._player_name(seat) for seat in self._seats]
    self._moment = await self._in_thread(self._game.prepare, seed, names)
    self._played = {}
    self._phase = self._next_phase if self._people else 'waiting'
    for person in self._people:
      person.pressed.clear()
      person.send({'facts': self._game.facts})
      self._show(person)
    self._broadcast()

  async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(self._thread, function, *args)

  async def _step(self) -> None:
    self._hurry.clear()
    for seat, player in enumerate(self._seats):
      self._game.seat(seat, self._player_name(player))
    choices = {}
    for seat, player in enumerate(self._seats):
      if isinstance(player, Person):
        choices[seat] = self._choices(player)
        self._played[seat] = player.name
    self._moment = await self._in_thread(self._game.play, choices)
    for person in self._people:
      self._show(person)
    curious = [person for person in self._people if person.looks_inside]
    if curious:
      looks = await self._in_thread(self._game.looks)
      for person in curious:
        person.send({'looks': looks})
    if self._moment.is_over:
      await self._end()
    else:
      # Of all players, so the next step only waits for people.
      await self._in_thread(self._game.actions, {})

  def _choices(self, person: Person) -> dict[str, int]:
    """Returns the choices that a person's keys make in this step."""
    choices: dict[str, int] = {}
    for index in sorted(person.down | person.pressed):
      key = self._playable.page.keys[index]
      if key.repeats or index in person.pressed:
        choices.setdefault(key.part, key.choice)
    person.pressed.clear()
    person.num_applied = person.num_messages
    return choices

  async def _end(self) -> None:
    """Saves the game, and sends the result and the Elo ratings of people."""
    assert self._moment is not None
    self._phase = 'over'
    saved = await self._save(self._count(self._moment.outcome))
    elo = {}
    for name in sorted(set(self._played.values())):
      rating, num_games = await self._in_thread(self._saved.rate, name)
      elo[name] = {'rating': round(rating), 'games': num_games}
    end = {'end': self._moment.outcome, 'wins': self._wins}
    for person in self._people:
      person.send({**end, 'saved': saved, 'elo': elo})
    self._broadcast()

  def _count(self, outcome: list[float]) -> dict[str, Any]:
    """Counts the win of a team, and returns the record of the game."""
    # Who stands up before the end has the result of that seat.
    seats = [
      self._playable.seat_facts(seat, self._played[seat], is_person=True)
      if seat in self._played
      else self._seat_facts(seat)
      for seat in range(len(self._seats))
    ]
    best = max(outcome)
    if outcome.count(best) == 1:
      self._wins[outcome.index(best)] += 1
    return self._game.record(seats, outcome, self._speed)

  async def _save(self, record: Mapping[str, Any]) -> str | None:
    """Returns the name of the saved game, or tells why there is none."""
    try:
      return await self._in_thread(self._saved.save, record)
    except OSError as error:
      for person in self._people:
        person.send({'error': f'The game could not be saved: {error}.'})
      return None

  def _fail(self, error: Exception) -> None:
    logging.error('The game stopped.', exc_info=error)
    self._phase = 'waiting'
    for person in self._people:
      text = str(error)[:300]
      person.send({'error': f'The game stopped: {text}'})
    self._broadcast()

  def _show(self, person: Person) -> None:
    """Sends the state, or the view of the agent on the person's seat."""
    assert self._moment is not None
    picture: Message = {'state': self._moment.state}
    if not person.sees_all:
      is_person = [player is person for player in self._seats]
      seat = is_person.index(True) if any(is_person) else person.watches
      picture = {'view': self._game.view(seat), 'seat': seat}
    person.send({**picture, 'heard': person.num_applied})

  def _broadcast(self, text: str = '') -> None:
    for person in list(self._people):
      person.send(
        {
          'phase': self._phase,
          'speed': self._speed,
          'wins': self._wins,
          'seats': [
            {**self._seat_facts(seat), 'you': player is person}
            for seat, player in enumerate(self._seats)
          ],
          'you': person.name,
          'text': text,
        }
      )

  def _seat_facts(self, seat: int) -> dict[str, Any]:
    player = self._seats[seat]
    if isinstance(player, Person):
      return self._playable.seat_facts(seat, player.name, is_person=True)
    return self._playable.seat_facts(seat, player)

  def _player_name(self, player: str | Person) -> str:
    return named_players.STILL if isinstance(player, Person) else player

  def _seat_of(self, message: Message) -> int:
    seat = message.get('seat')
    if type(seat) is not int or seat not in range(len(self._seats)):
      raise RequestError('There is no such seat; choose one that is shown.')
    return seat

  def _free_seat_of(self, message: Message, person: Person) -> int:
    """Returns the seat of a message, unless another person sits on it."""
    seat = self._seat_of(message)
    player = self._seats[seat]
    if isinstance(player, Person) and player is not person:
      raise RequestError(
        f'Seat {seat + 1} is taken by {player.name}; choose another seat.'
      )
    return seat

  def _empty_seats_of(self, person: Person) -> None:
    for seat, player in enumerate(self._seats):
      if player is person:
        self._seats[seat] = _first_seats(self._playable)[seat]

  def _sides_of(self, person: Person) -> set[int]:
    """Returns the teams for which a person has played in the current game."""
    if self._phase not in ('playing', 'paused'):
      return set()
    return {
      self._playable.teams[seat]
      for seat, name in self._played.items()
      if name == person.name
    }

  def _free_name(self, name: str) -> str:
    """Returns `name`, with a number if it is already taken."""
    names = {person.name for person in self._people}
    free, number = name, 1
    while free in names or free in self._playable.players.names:
      number += 1
      free = f'{name} {number}'
    return free


def _first_seats(
  playable: playable_lib.PlayableGame,
) -> list[str | Person]:
  """Seats members in turn; without members, the strongest script."""
  names = playable.players.names
  members = [name for name in names if name.startswith('member ')]
  weak = (named_players.RANDOM, named_players.STILL)
  # Scripts are listed from the weakest to the strongest.
  scripts = [name for name in names if name not in (*members, *weak)]
  players = members or scripts[-1:] or names
  return [players[seat % len(players)] for seat in range(len(playable.teams))]
