"""A room: one game, its seats, its people, and its clock.

People send requests as messages, such as `{'do': 'sit', 'seat': 1}`, each
handled by a method below, and receive messages. A request that cannot be
granted is answered by a sentence; no message can stop the room. A room is used
by a single event loop, and the game steps in a thread.
"""

import asyncio
import pathlib
import random
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from absl import logging

from ftwax.reporting import saved_games
from ftwax.runtime import cast as cast_lib
from ftwax.runtime import live_game
from ftwax.runtime import playable as playable_lib
from ftwax.web import people

# Steps per second that people can choose.
SPEEDS = range(4, 16)

_MAX_NAME_LENGTH = 24
_MAX_PEOPLE = 32


class Room:
  """One game with its seats and people."""

  def __init__(
    self, playable: playable_lib.PlayableGame, saved: saved_games.SavedGames
  ):
    """Makes a room for a game; `saved` stores finished games."""
    self._playable = playable
    self._saved = saved
    self._game = live_game.LiveGame(playable)
    self._people: list[people.Person] = []
    self._seats = _first_seats(playable)
    self._phase = 'waiting'  # Or preparing, playing, paused, over.
    self._speed = live_game.DEFAULT_SPEED
    self._clock: asyncio.Task[None] | None = None
    self._moment: live_game.Moment | None = None
    # A single thread, since renderers of Python games may not be thread-safe.
    self._thread = futures.ThreadPoolExecutor(1)

  @property
  def script(self) -> pathlib.Path:
    """The JavaScript file that draws the game."""
    return self._playable.page.script

  @property
  def is_empty(self) -> bool:
    """Whether there are no people in the room."""
    return not self._people

  def enter(self, send: people.Send) -> people.Person:
    """Adds a person to the room.

    Raises:
      people.RequestError: if the room is full.
    """
    if len(self._people) >= _MAX_PEOPLE:
      raise people.RequestError(
        f'The room is full: {_MAX_PEOPLE} people are in it.'
      )
    person = people.Person(self._free_name('player'), send)
    self._people.append(person)
    keys = [key._asdict() for key in self._playable.page.keys]
    person.send(
      {
        'hello': self._playable.name,
        'script': self._playable.page.script.stem,
        'keys': keys,
        'teams': self._playable.teams,
        'players': self._playable.cast.names,
        'speeds': [min(SPEEDS), max(SPEEDS)],
      }
    )
    self._tell_room()
    if self._moment is not None:
      person.send({'facts': self._game.facts})
      self._show(person)
    return person

  def leave(self, person: people.Person) -> None:
    """Removes a person; pauses the game when the room becomes empty."""
    self._people.remove(person)
    self._empty_seats_of(person)
    if not self._people and self._phase == 'playing':
      self._phase = 'paused'
    self._tell_room(f'{person.name} left.')

  async def close(self) -> None:
    """Stops the clock."""
    if self._clock is not None:
      self._clock.cancel()
      await asyncio.gather(self._clock, return_exceptions=True)
      self._clock = None

  def request(self, person: people.Person, message: Any) -> None:
    """Handles a request of a person, or answers why it cannot be granted."""
    try:
      do = message.get('do') if isinstance(message, dict) else None
      method = getattr(self, f'_do_{do}', None) if isinstance(do, str) else None
      if method is None:
        raise people.RequestError('The page sent an unknown request.')
      method(person, message)
    except people.RequestError as error:
      person.send({'error': str(error)})

  def _do_keys(self, person: people.Person, message: Mapping[str, Any]) -> None:
    down, keys = message.get('down'), range(len(self._playable.page.keys))
    if not isinstance(down, list) or not all(
      type(key) is int and key in keys for key in down
    ):
      raise people.RequestError(
        'The page sent keys that this game does not have.'
      )
    person.num_messages += 1
    person.pressed |= set(down) - person.down
    person.down = set(down)

  def _do_name(self, person: people.Person, message: Mapping[str, Any]) -> None:
    name = ' '.join(str(message.get('name', '')).split())[:_MAX_NAME_LENGTH]
    if not name:
      raise people.RequestError('A name must have at least one letter.')
    # Frees the present name, which the person may have typed again.
    person.name = ''
    person.name = self._free_name(name)
    self._tell_room()

  def _do_view(self, person: people.Person, message: Mapping[str, Any]) -> None:
    person.sees_all = message.get('all') is not False
    if 'seat' in message:
      person.watches = self._seat_of(message)
    if self._moment is not None:
      self._show(person)

  def _do_look(self, person: people.Person, message: Mapping[str, Any]) -> None:
    person.looks_inside = message.get('on') is True

  def _do_speed(
    self, person: people.Person, message: Mapping[str, Any]
  ) -> None:
    speed = message.get('speed')
    if type(speed) is not int or speed not in SPEEDS:
      raise people.RequestError(
        f'Moves per second must be from {min(SPEEDS)} to {max(SPEEDS)}.'
      )
    self._speed = speed
    self._tell_room()

  def _do_sit(self, person: people.Person, message: Mapping[str, Any]) -> None:
    seat = self._seat_of(message)
    there = self._seats[seat]
    if isinstance(there, people.Person) and there is not person:
      raise people.RequestError(
        f'Seat {seat + 1} is taken by {there.name}; choose another seat.'
      )
    self._empty_seats_of(person)
    self._seats[seat] = person
    self._tell_room()

  def _do_stand(
    self, person: people.Person, message: Mapping[str, Any]
  ) -> None:
    del message
    self._empty_seats_of(person)
    self._tell_room()

  def _do_seat(self, person: people.Person, message: Mapping[str, Any]) -> None:
    seat, player = self._seat_of(message), message.get('player')
    there = self._seats[seat]
    if player not in self._playable.cast.names:
      raise people.RequestError(
        'That player does not exist; choose one from the list.'
      )
    if isinstance(there, people.Person) and there is not person:
      raise people.RequestError(f'Seat {seat + 1} is taken by {there.name}.')
    self._seats[seat] = player
    self._tell_room()

  def _do_play(self, person: people.Person, message: Mapping[str, Any]) -> None:
    del message
    if self._phase == 'paused':
      self._phase = 'playing'
      self._tell_room(f'{person.name} resumed the game.')
      # Otherwise the clock has not noticed the pause and just goes on.
      if self._clock is None or self._clock.done():
        self._clock = asyncio.create_task(self._run())
    elif self._phase in ('waiting', 'over'):
      self._start(random.getrandbits(31))

  def _do_pause(
    self, person: people.Person, message: Mapping[str, Any]
  ) -> None:
    del message
    if self._phase == 'playing':
      self._phase = 'paused'
      self._tell_room(f'{person.name} paused the game.')

  def _do_restart(
    self, person: people.Person, message: Mapping[str, Any]
  ) -> None:
    del person, message
    self._start(self._game.seed)

  def _do_new_map(
    self, person: people.Person, message: Mapping[str, Any]
  ) -> None:
    del person, message
    self._start(random.getrandbits(31))

  def _start(self, seed: int) -> None:
    """Starts a new game, replacing the current one."""
    if self._phase == 'preparing':
      raise people.RequestError('The game is being prepared; wait a moment.')
    self._phase = 'preparing'
    self._tell_room()
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
        due = max(due + 1 / self._speed, clock())
        await asyncio.sleep(due - clock())
        if self._phase == 'playing':
          await self._step()
    except Exception as error:  # The server must survive any error.
      self._fail(error)

  async def _prepare(self, seed: int) -> None:
    names = [self._player_name(seat) for seat in self._seats]
    self._moment = await self._in_thread(self._game.prepare, seed, names)
    self._phase = 'playing' if self._people else 'paused'
    for person in self._people:
      person.pressed.clear()
      person.send({'facts': self._game.facts})
      self._show(person)
    self._tell_room()

  async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(self._thread, function, *args)

  async def _step(self) -> None:
    for seat, player in enumerate(self._seats):
      self._game.seat(seat, self._player_name(player))
    choices = {
      seat: self._choices(player)
      for seat, player in enumerate(self._seats)
      if isinstance(player, people.Person)
    }
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
      await self._in_thread(self._game.think)

  def _choices(self, person: people.Person) -> dict[str, int]:
    """Returns the choices that a person's keys make in this step."""
    choices: dict[str, int] = {}
    for index in sorted(person.down | person.pressed):
      key = self._playable.page.keys[index]
      if key.repeats or index in person.pressed:
        choices.setdefault(key.part, key.choice)
    person.pressed.clear()
    person.num_heard = person.num_messages
    return choices

  async def _end(self) -> None:
    """Saves the game, and sends the result and the Elo ratings of people."""
    assert self._moment is not None
    self._phase = 'over'
    players = {p for p in self._seats if isinstance(p, people.Person)}
    seats = [self._seat_facts(seat) for seat in range(len(self._seats))]
    record = self._game.record(seats, self._moment, self._speed)
    try:
      name = await self._in_thread(self._saved.save, record)
    except OSError as error:
      name = None
      for person in players:
        person.send({'error': f'The game could not be saved: {error}.'})
    elo = {
      person.name: await self._in_thread(self._rate, person.name)
      for person in players
    }
    for person in self._people:
      person.send({'end': self._moment.outcome, 'saved': name, 'elo': elo})
    self._tell_room()

  def _rate(self, name: str) -> Mapping[str, float]:
    rating, num_games = self._saved.rate(name)
    return {'rating': round(rating), 'games': num_games}

  def _fail(self, error: Exception) -> None:
    logging.error('The game stopped.', exc_info=error)
    self._phase = 'waiting'
    for person in self._people:
      text = str(error)[:300]
      person.send({'error': f'The game stopped: {text}'})
    self._tell_room()

  def _show(self, person: people.Person) -> None:
    """Sends the state, or the view of the agent on the person's seat."""
    assert self._moment is not None
    shown: dict[str, Any] = {'state': self._moment.state}
    if not person.sees_all:
      own = [seat for seat, there in enumerate(self._seats) if there is person]
      seat = (own or [person.watches])[0]
      shown = {'view': self._game.view(seat), 'seat': seat}
    person.send({**shown, 'heard': person.num_heard})

  def _tell_room(self, text: str = '') -> None:
    for person in list(self._people):
      person.send(
        {
          'phase': self._phase,
          'speed': self._speed,
          'seats': [
            {**self._seat_facts(seat), 'you': there is person}
            for seat, there in enumerate(self._seats)
          ],
          'you': person.name,
          'text': text,
        }
      )

  def _seat_facts(self, seat: int) -> dict[str, Any]:
    there = self._seats[seat]
    if isinstance(there, people.Person):
      return self._playable.seat_facts(seat, there.name, is_person=True)
    return self._playable.seat_facts(seat, there)

  def _player_name(self, player: str | people.Person) -> str:
    return cast_lib.STILL if isinstance(player, people.Person) else player

  def _seat_of(self, message: Mapping[str, Any]) -> int:
    seat = message.get('seat')
    if type(seat) is not int or seat not in range(len(self._seats)):
      raise people.RequestError(
        'There is no such seat; choose one that is shown.'
      )
    return seat

  def _empty_seats_of(self, person: people.Person) -> None:
    for seat, there in enumerate(self._seats):
      if there is person:
        self._seats[seat] = _first_seats(self._playable)[seat]

  def _free_name(self, name: str) -> str:
    """Returns `name`, with a number if it is already taken."""
    taken = {person.name for person in self._people}
    free, number = name, 1
    while free in taken or free in self._playable.cast.names:
      number += 1
      free = f'{name} {number}'
    return free


def _first_seats(
  playable: playable_lib.PlayableGame,
) -> list[str | people.Person]:
  """Seats members in turn; without members, the strongest script."""
  names = playable.cast.names
  members = [name for name in names if name.startswith('member ')]
  weak = (cast_lib.RANDOM, cast_lib.STILL)
  # Scripts are listed from the weakest to the strongest.
  scripts = [name for name in names if name not in (*members, *weak)]
  chosen = members or scripts[-1:] or names
  return [chosen[seat % len(chosen)] for seat in range(len(playable.teams))]
